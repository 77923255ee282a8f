"""What is read of completions beside their verdict."""

import math

import numpy as np
import pytest

from rlvr_jax.config import RewardConfig, VerifierConfig
from rlvr_jax.rewards import confidence_metrics, read_signals
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers import Judge

PROBLEMS = [
    Problem(id=name, prompt="", gold=gold, kind="finite_field", source="test")
    for name, gold in (("a", "e3"), ("a", "e3"), ("b", "e0"), ("b", "e0"))
]
TEXTS = ["answer e3", "answer e2 confidence: 0.25", "answer e1", "none"]


def _read(*names: str, seed: int = 0) -> dict[str, np.ndarray]:
    config = RewardConfig(names=names, weights=(1.0,) * len(names))
    with Judge(VerifierConfig()) as judge:
        return read_signals(
            config, PROBLEMS, TEXTS, judge=judge, seed=seed, samples_per_prompt=2
        )


def test_the_verdict_alone_reads_nothing():
    assert _read("verdict") == {}


def test_each_named_part_is_a_number_per_completion():
    found = _read("format", "confidence", "wrong_label")
    assert {name: values.dtype for name, values in found.items()} == dict.fromkeys(
        ("format", "confidence", "wrong_label"), np.float32
    )
    np.testing.assert_array_equal(found["format"], [1, 0, 1, 0])
    np.testing.assert_array_equal(
        found["confidence"], [math.nan, 0.25] + [math.nan] * 2
    )
    # False golds are e2 and e1; the second text goes on after its answer.
    np.testing.assert_array_equal(found["wrong_label"], [0, 0, 1, 0])


def test_a_random_reward_does_not_depend_on_the_other_rows():
    both = [_read("random", seed=seed)["random"] for seed in range(40)]
    again = [_read("random", seed=seed)["random"] for seed in range(40)]
    np.testing.assert_array_equal(both, again)
    columns = np.array(both).T
    assert {0.0, 1.0} == set(columns.ravel().tolist())
    assert len({column.tobytes() for column in columns}) == 4  # all four differ


@pytest.mark.parametrize("status", ["right", "wrong"])
def test_calibration_leaves_out_the_unjudged(status):
    verdicts = [Verdict(status="unjudged"), Verdict(status=status)]
    signals = {"confidence": np.float32([0.9, 1.0])}
    brier = confidence_metrics(signals, verdicts)["confidence/brier"]
    assert brier == (status == "wrong")
    assert confidence_metrics({}, verdicts) == {}
    assert confidence_metrics(signals, verdicts[:1] * 2) == {}
