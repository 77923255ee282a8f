"""Which problems an analysis samples, of which policy, and with which settings.

A comparison with training samples as training does, one with evaluation as evaluation
does. Problems that RL may have trained on are never held out.
"""

import contextlib
import types

import numpy as np
import pytest

from job_jax.steps import StopSignal
from rlvr_jax.analysis.causal import command as causal
from rlvr_jax.analysis.completions import complete_problems
from rlvr_jax.analysis.credit import command as credit
from rlvr_jax.analysis.credit.policies import ProbedRun
from rlvr_jax.analysis.credit.weights import TokenWeights
from rlvr_jax.analysis.gradients import command as gradients
from rlvr_jax.analysis.gradients.batches import PolicyGradients
from rlvr_jax.probe import capture
from rlvr_jax.probe.edited_policy import sample_edited
from rlvr_jax.probe.intervene import InterventionSpec
from rlvr_jax.probe.prefix_values import sample_prefix_values
from rlvr_jax.run.load import LoadedPolicy
from sae_jax import io
from tests.support.stand_ins import CONFIG, Named, settings_of, stand_in

TRAIN, EVAL = settings_of(CONFIG.train.sampling), settings_of(CONFIG.eval.sampling)
LAYER = 5
ASKED = types.SimpleNamespace(
    lambda_w=0.25,
    num_problems=6,
    num_samples=3,
    num_controls=2,
    num_reference=4,
    num_batches=7,
)


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


def test_texts_of_checkpoints_are_of_train_problems_as_rl_samples_them(run):
    batches = complete_problems(
        run.ctx.setup,
        Named("before"),
        0,
        num_problems=11,
        num_samples=3,
        stop=StopSignal(),
    )
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
    assert [draw.uids for draw in run.draws] == [[0, 1], [2, 3]]
    for draw in run.draws:
        assert draw.settings == TRAIN
        assert (draw.num_samples, draw.version) == (4, 9)
        assert draw.key == run.key_of("prefixes")
    # Prefix t has t samples that end right here; the last row is the verdict itself.
    assert values.sum(axis=1).tolist() == [0, 1, 2, 4]


@pytest.fixture
def probed(monkeypatch, tmp_path):
    """Returns a run with features of layer LAYER, and a list of the drawn weights.

    The run's policy is "after" RL; the policy before RL is "before".
    """
    drawn = []

    def load(config, workdir, *, stage):
        return contextlib.nullcontext(LoadedPolicy(f"setup of {stage}", "after", 9))

    def draw(tsae, selection, rfgo, residual, rollouts, *, num_draws):
        drawn.append((tsae, selection.layer, rfgo.lambda_w, residual, num_draws))
        return types.SimpleNamespace(weigh=lambda *_: ("kinds", "draws"))

    for command in (credit, gradients):
        monkeypatch.setattr(command, "load_policy", load)
        monkeypatch.setattr(command, "load_params_before_rl", lambda *_: "before")
    monkeypatch.setattr(TokenWeights, "draw", draw)
    monkeypatch.setattr(io, "load", lambda path: path.name)
    selection = types.SimpleNamespace(layer=LAYER)
    return ProbedRun(tmp_path, CONFIG, selection), drawn


def test_credit_is_of_the_policy_before_rl_at_the_layer_of_its_features(
    probed, monkeypatch
):
    run, drawn = probed
    calls = []

    def answer(policy, num_problems, *, layer):
        calls.append(("answer", *policy[:2], num_problems, layer))
        return types.SimpleNamespace(residual="residual", rollouts="rollouts")

    def measure(policy, answers, *, num_samples):
        calls.append(("measure", *policy[:2], num_samples))
        return "changes"

    monkeypatch.setattr(credit, "_answer", answer)
    monkeypatch.setattr(credit, "_measure_changes", measure)
    monkeypatch.setattr(credit, "compare_weights", lambda *found: found)
    found = credit._measure_run(run, ASKED)
    assert found == ("kinds", "draws", "changes")
    assert calls == [
        ("answer", "setup of eval", "before", 6, LAYER),
        ("measure", "setup of eval", "before", 3),
    ]
    assert drawn == [("sae", LAYER, 0.25, "residual", 2)]


def test_gradients_are_of_the_policy_before_rl_at_the_layer_of_its_features(
    probed, monkeypatch
):
    run, drawn = probed
    calls = []

    def compare(policy, batches, draw_weights, **counts):
        calls.append(("compare", *policy[:2], batches, counts))
        groups = types.SimpleNamespace(rollouts="rollouts")
        draw_weights(types.SimpleNamespace(groups=groups))

    monkeypatch.setattr(gradients, "_compare", compare)
    monkeypatch.setattr(
        gradients,
        "sample_batches",
        lambda policy, workdir, count: f"{count} of {policy.params}",
    )
    monkeypatch.setattr(
        gradients,
        "clean_residuals",
        lambda policy, rollouts, layer: f"{policy.params} at {layer}",
    )
    gradients._measure_run(run, ASKED)
    counts = {"num_reference": 4, "num_batches": 7}
    assert calls == [
        ("compare", "setup of train", "before", "11 of before", counts),
    ]
    assert drawn == [("sae", LAYER, 0.25, f"before at {LAYER}", 2)]


def test_gradients_are_taken_with_the_settings_of_training(policy):
    assert settings_of(PolicyGradients(policy)._sampling) == TRAIN


def test_activations_are_of_train_problems_as_rl_samples_them(
    run, policy, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        capture, "open_writer", lambda *_, **__: contextlib.nullcontext()
    )
    monkeypatch.setattr(capture, "add_sequences", lambda *_, **__: 0)
    capture.write_activations(
        policy, tmp_path / "out", layer=0, num_problems=11, num_samples=3, dtype=""
    )
    assert _prompts(run, 11) == _asked(run, "train", 11)
    for draw in run.draws:
        assert draw.settings == TRAIN
        assert (draw.num_samples, draw.max_new_tokens) == (3, 24)
        assert (draw.key, draw.version) == (run.key_of("train"), 9)


def test_interventions_share_a_scope_and_have_controls_of_their_own_seeds(
    policy, monkeypatch, tmp_path
):
    specs = [
        InterventionSpec(
            layer=LAYER,
            latents=(latent,),
            mode="ablate",
            strengths=(1.0,),
            num_controls=2,
            scope="everywhere",
        )
        for latent in (3, 8)
    ]
    calls = []

    def run_arms(policy, problems, arms, **settings):
        calls.append((len(problems), arms, settings))
        return ["clean", *arms]

    monkeypatch.setattr(
        causal, "make_arms", lambda spec, *_, seed: [(spec.latents, seed)]
    )
    monkeypatch.setattr(causal, "_run_arms", run_arms)
    for name in ("calibrate", "_warnings", "compute_contrasts", "_calibration_record"):
        monkeypatch.setattr(causal, name, lambda *_, **__: [])
    for name in ("describe_effects", "format_table", "arm_row", "draw_figure"):
        monkeypatch.setattr(causal, name, lambda *_, **__: [])
    causal.run_experiment(policy, None, specs, directory=tmp_path)
    arms = [((3,), CONFIG.seed), ((8,), CONFIG.seed + 1)]
    settings = {"scope": "everywhere", "directory": tmp_path, "outcomes": ()}
    assert calls == [(11, arms, settings)]
