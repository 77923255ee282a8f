"""Which problems an analysis samples, and with which settings.

A comparison with training samples as training does, one with evaluation as evaluation
does. Problems that RL may have trained on are never held out.
"""

import types

import numpy as np
import pytest
from stand_ins import CONFIG, Named, settings_of, stand_in

from rlvr_jax.analysis.credit import command as credit
from rlvr_jax.analysis.crosscoder import texts as crosscoder
from rlvr_jax.probe.edited_policy import sample_edited
from rlvr_jax.probe.prefix_values import sample_prefix_values
from rlvr_jax.run.load import LoadedPolicy

TRAIN, EVAL = settings_of(CONFIG.train.sampling), settings_of(CONFIG.eval.sampling)


@pytest.fixture
def run(tmp_path):
    with stand_in(tmp_path) as found:
        yield found


@pytest.fixture
def policy(run):
    return LoadedPolicy(run.ctx.setup, Named("loaded"), 9)


def _asked(run, stage, count):
    return [run.prompt_of(problem) for problem in run.ctx.setup.problems(stage, count)]


def _prompts(run, count):
    return [prompt for draw in run.draws for prompt in draw.prompts][:count]


def test_an_edited_policy_answers_as_in_evaluation(run, policy):
    problems = run.ctx.setup.problems("eval", 11)
    edits = [None, None]
    for edit in edits:
        list(sample_edited(policy, problems, edit))
    clean, edited = run.draws[:2], run.draws[2:]
    assert clean == edited  # one key for every edit
    for draw in run.draws:
        assert (draw.policy, draw.version) == ("loaded", 9)
        assert draw.settings == EVAL != TRAIN
        assert (draw.num_samples, draw.max_new_tokens) == (2, 20)
        assert draw.key == run.key_of("eval")


def test_a_crosscoders_texts_are_of_train_problems_as_rl_samples_them(run):
    batches = crosscoder._complete(run.ctx.setup, Named("before"), 0, 11, 3)
    assert _prompts(run, 11) == _asked(run, "train", 11)
    for draw in run.draws:
        assert draw.settings == TRAIN
        assert (draw.num_samples, draw.max_new_tokens) == (3, 24)
        assert draw.key == run.key_of("train")
    assert [len(batch.problems) for batch in batches] == [8, 3]


def test_credit_is_of_held_out_problems_as_rl_samples_them(run, policy, monkeypatch):
    monkeypatch.setattr(
        credit, "clean_residuals", lambda policy, rollouts, layer: np.zeros((16, 1))
    )
    answers = credit._answer(policy, 11, layer=1)
    (draw,) = run.draws
    assert draw.prompts[:11] == _asked(run, "eval", 11)
    assert draw.settings == TRAIN
    assert (draw.num_samples, draw.max_new_tokens) == (1, 24)
    assert draw.key == run.key_of("eval")
    assert len(answers.graded) == len(answers.residual) == 11


def test_prefixes_are_completed_with_separate_keys(run, policy, monkeypatch):
    """Three tokens of one completion: prefixes of 0, 1 and 2 tokens are continued."""
    problem = run.ctx.setup.problems("eval", 1)[0]
    prompt = run.prompt_of(problem)
    rollouts = types.SimpleNamespace(
        prompts=types.SimpleNamespace(
            tokens=np.array([prompt]), lengths=np.array([len(prompt)])
        ),
        tokens=np.array([[20, 21, 22]]),
        lengths=np.array([3]),
    )
    graded = [
        types.SimpleNamespace(
            problem=problem,
            length=3,
            verdict=types.SimpleNamespace(status="correct"),
        )
    ]
    monkeypatch.setattr(
        "rlvr_jax.probe.prefix_values._judge",
        lambda policy, problems, rollouts, part, sampled, width: [
            np.arange(4) < prefix.length for prefix in part
        ],
    )
    (values,) = sample_prefix_values(
        policy,
        graded,
        rollouts,
        sampling=CONFIG.train.sampling,
        num_samples=4,
        batch_size=2,
    )
    assert [draw.prompts for draw in run.draws] == [
        [prompt, (*prompt, 20)],
        [(*prompt, 20, 21)] * 2,
    ]
    for draw in run.draws:
        assert draw.settings == TRAIN
        assert (draw.num_samples, draw.version) == (4, 9)
        assert draw.key == run.key_of("prefixes")
    # Prefix t has t samples that end right here; the last row is the verdict itself.
    assert values.sum(axis=1).tolist() == [0, 1, 2, 4]
