"""Stage `probe`: which completions a probe is fitted to, and which it reads later."""

import contextlib
import dataclasses

import numpy as np
import pytest

from rlvr_jax.probe.reference_texts import REFERENCE_TEXTS_FILE, ReferenceTexts
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.stages import probe as stage
from rlvr_jax.types import BANDS, Outcome
from tests.support.stand_ins import CONFIG, G, name_policies, settings_of, stand_in

NUM_PROBLEMS, NUM_TEXTS = 12, 8
PROBED = dataclasses.replace(
    CONFIG,
    model=dataclasses.replace(CONFIG.model, num_layers=2),
    probe=SAEProbeConfig(
        layer=1, num_problems=NUM_PROBLEMS, num_reference_texts=NUM_TEXTS
    ),
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Yields a run without activations: `written` records the ones to be written."""
    name_policies(monkeypatch, stage)
    written = []

    @contextlib.contextmanager
    def writer(setup, directory, **settings):
        written.append(settings)
        yield None

    def add(setup, shards, problems, rollouts, *, params, layer):
        written.append((params, layer, [p.id for p in problems], rollouts.tokens))
        return int(rollouts.lengths.sum())

    monkeypatch.setattr(stage, "open_writer", writer)
    monkeypatch.setattr(stage, "add_sequences", add)
    with stand_in(tmp_path, PROBED) as found:
        found.ctx.workdir.path.joinpath("probe").mkdir()
        yield found, written


def test_a_probe_is_fitted_to_what_rl_samples_of_train_problems(run):
    found, written = run
    stage._collect_activations(found.ctx)
    problems = found.ctx.setup.problems("train", NUM_PROBLEMS)
    prompts = [found.prompt_of(problem) for problem in problems]
    asked = [prompt for draw in found.draws for prompt in draw.prompts]
    assert asked[:NUM_PROBLEMS] == prompts
    for draw in found.draws:
        assert draw.policy == "sft"
        assert draw.settings == settings_of(CONFIG.train.sampling)
        assert (draw.num_samples, draw.max_new_tokens) == (G, 24)
        assert draw.key == found.key_of("probe")
    opened, *added = written
    assert opened["layer"] == PROBED.probe.layer
    assert {(params, layer) for params, layer, *_ in added} == {
        ("sft", PROBED.probe.layer)
    }
    ids = [name for _, _, names, _ in added for name in names]
    assert ids == [problem.id for problem in problems]
    rows = found.ctx.workdir.read_rollouts("probe", 0)
    assert [(r["id"], r["completion"], r["verdict"]) for r in rows] == found.judged


def _texts(found):
    path = found.ctx.workdir.path / "probe" / REFERENCE_TEXTS_FILE
    stage._write_reference_texts(found.ctx, path)
    return ReferenceTexts.load(path)


def test_reference_texts_are_of_problems_that_nothing_was_trained_on(run):
    """They exclude the question texts of RL, SFT and the probe's own fit."""
    found, _ = run
    texts = _texts(found)
    setup = found.ctx.setup
    held_out = {p.id: p for p in setup.problems("eval", NUM_PROBLEMS)}
    assert set(texts.problem_ids) <= held_out.keys()
    assert len(set(texts.problem_ids)) == NUM_TEXTS
    trained = {
        problem.prompt
        for name in ("train", "sft")
        for problem in setup.problems(name, 500)
    }
    assert not trained & {held_out[name].prompt for name in texts.problem_ids}
    for row, name in enumerate(texts.problem_ids):
        prompt = texts.prompt_tokens[row, : texts.prompt_lengths[row]].tolist()
        assert tuple(prompt) == found.prompt_of(held_out[name])


def test_reference_texts_are_sampled_as_rl_samples_in_the_room_of_evaluation(run):
    found, _ = run
    _texts(found)
    for draw in found.draws:
        assert draw.policy == "sft"
        assert draw.settings == settings_of(CONFIG.train.sampling)
        assert draw.max_new_tokens == min(24, 20)
        assert draw.num_samples == G


def test_each_text_is_its_problems_first_completion_with_its_verdict_and_band(run):
    found, _ = run
    texts = _texts(found)
    by_problem = {}
    for name, text, status in found.judged:
        by_problem.setdefault(name, []).append((text, status))
    seen = set()
    for row, name in enumerate(texts.problem_ids):
        group = by_problem[name]
        tokens = texts.tokens[row, : texts.lengths[row]].tolist()
        text, status = group[0]
        assert found.ctx.setup.tokenizer.decode(tokens) == text
        assert texts.outcomes[row] == Outcome[status]
        known = [s for _, s in group if s != "unverified"]
        rate = known.count("correct") / len(known)
        band = "hard" if rate == 0 else "easy" if rate == 1 else "medium"
        assert BANDS[texts.bands[row]] == band
        seen.add(band)
    assert len(seen) > 1


def test_what_is_there_is_not_made_again(run):
    found, written = run
    first = _texts(found)
    asked = len(found.draws)
    second = _texts(found)
    assert len(found.draws) == asked
    np.testing.assert_array_equal(first.tokens, second.tokens)
    (found.ctx.workdir.path / stage.ACTIVATIONS_DIR).mkdir()
    stage._collect_activations(found.ctx)
    assert (len(found.draws), written) == (asked, [])


def test_noise_is_drawn_around_the_policy_before_rl(run, monkeypatch):
    found, _ = run
    asked = []
    monkeypatch.setattr(
        stage, "write_noise", lambda setup, path, **told: asked.append((path, told))
    )
    stage.write_probe_noise(found.ctx)
    told = {"before": "sft", "after": "train", "step": CONFIG.train.steps}
    assert asked == [(found.ctx.workdir.path, told)]


def test_completions_of_one_question_are_one_problem_to_the_probe():
    """Ids do not matter: no question text is on both sides of a split."""
    rows = [
        {"prompt": prompt, "verdict": verdict}
        for prompt, verdict in (
            ("a", "correct"),
            ("b", "incorrect"),
            ("a", "unverified"),
            ("c", "correct"),
        )
    ]
    labeled = stage._label(None, rows)
    assert labeled.problem_index.tolist() == [0, 1, 0, 2]
    assert labeled.outcomes.tolist() == [
        Outcome[name] for name in ("correct", "incorrect", "unverified", "correct")
    ]
