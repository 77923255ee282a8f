"""Telemetry of a step: numbers worked out by hand on three groups of two."""

import math

import numpy as np
import pytest

from rlvr_jax.metrics.rollouts import rollout_metrics
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import Problem, Verdict


def judged(
    status: str,
    *,
    level: int = 1,
    type_: str = "evaluation",
    strategy: str = "forward",
    finished: bool = True,
    length: int = 10,
    band: str | None = None,
    flags: tuple[str, ...] = (),
) -> GradedCompletion:
    return GradedCompletion(
        problem=Problem(
            id="p", prompt="", gold="", verifier="", source="", level=level, type=type_
        ),
        completion="",
        verdict=Verdict(status=status),
        length=length,
        finished=finished,
        strategy=strategy,
        weight_version=0,
        flags=flags,
        band=band,
    )


def metrics(
    *groups: list[GradedCompletion], advantages: list[list[float]]
) -> dict[str, float]:
    rights = np.array([[one.verdict.status == "correct" for one in g] for g in groups])
    return rollout_metrics(
        [one for group in groups for one in group],
        rewards_PG=rights.astype(np.float32),
        advantages_PG=np.array(advantages, np.float32),
        has_signal_P=rights.std(axis=1) > 0,
        k=(1, 2, 4),
    )


def test_levels_and_types_get_their_own_numbers():
    found = metrics(
        [judged("correct", level=2, length=8), judged("incorrect", level=2, length=12)],
        [judged("correct", level=3), judged("correct", level=3)],
        [
            judged("incorrect", level=3, type_="inversion"),
            judged("correct", level=3, type_="inversion", strategy="backward"),
        ],
        advantages=[[3, -3], [0, 0], [-1, 1]],
    )
    assert found["reward/mean"] == pytest.approx(4 / 6)
    assert found["level_2/pass"] == 0.5
    assert found["level_2/length"] == 10
    assert found["level_2/advantage_mass"] == pytest.approx(6 / 8)
    assert found["level_3/pass"] == 0.75
    assert found["level_3/nonzero_std"] == 0.5
    assert found["level_3/advantage_mass"] == pytest.approx(2 / 8)
    assert found["type_inversion/pass"] == 0.5
    assert found["strategy_inversion/forward"] == 0.5
    assert found["strategy_inversion/forward_pass"] == 0
    assert found["strategy_inversion/backward_pass"] == 1
    assert "strategy_evaluation/backward" not in found
    # One of two goes forward, the other backward; and two that go the same way.
    assert found["strategy_inversion/entropy"] == pytest.approx(math.log(2))
    assert found["strategy_evaluation/entropy"] == 0


@pytest.mark.parametrize(
    ("group", "cause"),
    [
        ([judged("correct"), judged("correct")], "all_correct"),
        ([judged("incorrect"), judged("incorrect")], "all_incorrect"),
        ([judged("correct"), judged("incorrect")], "nonzero_std"),
        ([judged("incorrect"), judged("unverified")], "unverified"),
        (
            [judged("incorrect", finished=False), judged("incorrect", finished=False)],
            "truncated",
        ),
        ([judged("incorrect", finished=False), judged("incorrect")], "all_incorrect"),
    ],
)
def test_every_group_has_one_cause(group, cause):
    found = metrics(group, advantages=[[0, 0]])
    causes = {name: value for name, value in found.items() if name[:7] == "groups/"}
    assert causes[f"groups/{cause}"] == 1
    assert sum(causes.values()) == 1


def test_bands_get_their_own_numbers():
    hard, easy = {"band": "hard"}, {"band": "easy"}
    found = metrics(
        [
            judged("correct", **hard, length=4, flags=("lucky_guess", "bare_answer")),
            judged("incorrect", **hard, length=8),
        ],
        [
            judged("incorrect", **hard),
            judged("incorrect", **hard, flags=("repetition",)),
        ],
        [judged("correct", **easy), judged("correct", **easy)],
        [judged("correct"), judged("incorrect")],
        advantages=[[3, -3], [0, 0], [0, 0], [1, -1]],
    )
    expected = {
        "share": 0.5,
        "reward": 0.25,
        "pass": 0.25,
        "length": 8,
        "nonzero_std": 0.5,
        "all_incorrect": 0.5,
        "all_correct": 0,
        "advantage_mass": 6 / 8,
        "lucky_guess": 0.25,
        "repetition": 0.25,
        "pass@1": 0.25,
        "pass@2": 0.5,
    }
    for name, value in expected.items():
        assert found[f"band_hard/{name}"] == pytest.approx(value), name
    assert found["band_easy/all_correct"] == 1
    assert found["behavior/bare_answer"] == 1 / 8
    # Problems of which no account is kept are in no band; a group of two has no pass@4.
    assert not any(name.startswith("band_unknown") for name in found)
    assert not any(name.endswith("pass@4") for name in found)


def test_pass_at_k_leaves_out_groups_with_too_few_verdicts():
    found = metrics(
        [judged("correct"), judged("incorrect")],
        [judged("incorrect"), judged("unverified")],
        advantages=[[1, -1], [0, 0]],
    )
    # c / n of 1/2 and 0/1; two verdicts in the first group only, one of them right.
    assert found["rollout/pass@1"] == 0.25
    assert found["rollout/pass@2"] == 1.0
