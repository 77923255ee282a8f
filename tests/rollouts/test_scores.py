"""Scores that are read from completions in addition to the verdict."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import RewardConfig, VerifierConfig
from rlvr_jax.rewards.parts import reward_parts
from rlvr_jax.rollouts.scores import confidence_metrics, score_completions
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.grader import Grader
from tests.support import user_extensions

PROBLEMS = [
    Problem(id=name, prompt="", gold=gold, verifier="finite_field", source="test")
    for name, gold in (("a", "e3"), ("a", "e3"), ("b", "e0"), ("b", "e0"))
]
TEXTS = ["answer e3", "answer e2 confidence: 0.25", "answer e1", "none"]


def _read(*names: str, seed: int = 0) -> dict[str, np.ndarray]:
    config = RewardConfig(names=names, weights=(1.0,) * len(names))
    with Grader(VerifierConfig()) as judge:
        return score_completions(
            config, PROBLEMS, TEXTS, judge=judge, seed=seed, group_size=2
        ).values


def test_the_verdict_alone_reads_nothing():
    assert _read("correctness") == {}


def test_each_named_part_is_a_number_per_completion():
    found = _read("format", "confidence", "wrong_label")
    assert {name: values.dtype for name, values in found.items()} == dict.fromkeys(
        ("format", "confidence", "wrong_label"), np.float32
    )
    np.testing.assert_array_equal(found["format"], [1, 0, 1, 0])
    np.testing.assert_array_equal(
        found["confidence"], [math.nan, 0.25] + [math.nan] * 2
    )
    # False golds are e2 and e1. The second text continues after its answer.
    np.testing.assert_array_equal(found["wrong_label"], [0, 0, 1, 0])


def test_the_form_of_an_answer_ignores_the_confidence_next_to_it():
    stated = "<confidence>0.9</confidence>"
    problem = Problem(id="a", prompt="", gold="b", verifier="exact", source="")
    config = RewardConfig(names=("format", "confidence"), weights=(1.0, 1.0))
    with Grader(VerifierConfig()) as judge:
        found, _ = score_completions(
            config,
            [problem] * 2,
            [stated, f"b {stated}"],
            judge=judge,
            seed=0,
            group_size=2,
        )
    assert found["format"].tolist() == [0, 1]  # a confidence alone is not an answer
    np.testing.assert_allclose(found["confidence"], 0.9)


def test_a_random_reward_does_not_depend_on_the_other_rows():
    both = [_read("random", seed=seed)["random"] for seed in range(40)]
    again = [_read("random", seed=seed)["random"] for seed in range(40)]
    np.testing.assert_array_equal(both, again)
    columns = np.array(both).T
    assert {0.0, 1.0} == set(columns.ravel().tolist())
    assert len({column.tobytes() for column in columns}) == 4  # all four differ


@pytest.mark.parametrize("status", ["correct", "incorrect"])
def test_calibration_leaves_out_the_unverified(status):
    verdicts = [Verdict(status="unverified"), Verdict(status=status)]
    signals = {"confidence": np.float32([0.9, 1.0])}
    brier = confidence_metrics(signals, verdicts)["confidence/brier"]
    assert brier == (status == "incorrect")
    assert confidence_metrics({}, verdicts) == {}
    assert confidence_metrics(signals, verdicts[:1] * 2) == {}


def test_a_users_reward_is_a_function_named_by_its_place():
    """No opinion earns the group's mean; a group without any opinion earns 0."""
    name = "tests.support.user_extensions:brevity"
    found = _read("correctness", name)
    assert found.keys() == {name}
    np.testing.assert_array_equal(found[name], [2, 4, math.nan, math.nan])
    config = RewardConfig(names=(name,), weights=(1.0,))
    scores_PG = jnp.array([[2.0, math.nan, 4.0], [math.nan] * 3])
    status_PG = jnp.ones((2, 3), bool)
    parts = reward_parts(status_PG, status_PG, {name: scores_PG}, config=config)
    np.testing.assert_array_equal(parts[name], [[2, 3, 4], [0, 0, 0]])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("corectness", "unknown reward 'corectness'; did you mean 'correctness'"),
        (
            "tests.support.user_extensions:brevty",
            "has no 'brevty'; did you mean 'brevity'",
        ),
        ("no_such_module:reward", "cannot import no_such_module"),
    ],
)
def test_an_unknown_reward_is_refused_before_anything_runs(name, message):
    with pytest.raises(ConfigError, match=message):
        RewardConfig(names=(name,))


def test_a_users_reward_of_another_length_is_refused(monkeypatch):
    monkeypatch.setattr(user_extensions, "brevity", lambda *_: [1.0])
    with pytest.raises(ConfigError, match="returned 1 scores for 4 completions"):
        _read("tests.support.user_extensions:brevity")
