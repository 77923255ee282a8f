"""Telemetry of a step, with numbers worked out by hand on three groups of two."""

import math

import numpy as np
import pytest

from rlvr_jax.metrics.rollouts import rollout_metrics
from rlvr_jax.rollouts.behavior import FORMATS
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import Problem, Verdict


def judged(
    status: str,
    *,
    level: int = 1,
    type_: str = "evaluation",
    strategy: str | None = "forward",
    finished: bool = True,
    length: int = 10,
    band: str | None = None,
    posterior: str | None = None,
    flags: tuple[str, ...] = (),
    format_: str = "boxed",
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
        format=format_,
        band=band,
        posterior_band=posterior,
    )


def metrics(
    *groups: list[GradedCompletion],
    advantages: list[list[float]],
    rewards: list[list[float]] | None = None,
    are_judged: list[list[bool]] | None = None,
) -> dict[str, float]:
    rights = np.array([[one.verdict.status == "correct" for one in g] for g in groups])
    return rollout_metrics(
        [one for group in groups for one in group],
        rewards_PG=np.array(rights if rewards is None else rewards, np.float32),
        judged_PG=(
            np.ones(rights.shape, bool) if are_judged is None else np.array(are_judged)
        ),
        advantages_PG=np.array(advantages, np.float32),
        has_signal_P=rights.std(axis=1) > 0,
        k=(1, 2, 4),
    )


def test_the_reward_gap_is_within_groups_that_hold_both_verdicts():
    right, wrong, unknown = map(judged, ("correct", "incorrect", "unverified"))
    none = [[0.0] * 3] * 3
    found = metrics(
        [right, wrong, wrong],
        [right, wrong, unknown],
        [right, right, unknown],  # its 9 counts in no mean
        advantages=none,
        rewards=[[1.0, 0.5, 0.0], [0.25, 0.5, 9.0], [9.0, 9.0, 0.0]],
    )
    assert found["verdict/reward_gap"] == pytest.approx(((1 - 0.25) + (0.25 - 0.5)) / 2)
    alike = metrics([right, right], [wrong, unknown], advantages=[[0.0] * 2] * 2)
    assert "verdict/reward_gap" not in alike


def test_a_group_of_which_nothing_is_judged_has_no_reward():
    """Its rewards are filled with 0."""
    easy, medium = (judged("correct", band=band) for band in ("easy", "medium"))
    found = metrics(
        [easy, easy],
        [easy, easy],
        [medium, medium],
        advantages=[[0.0] * 2] * 3,
        rewards=[[0.75, 0.25], [0.0, 0.0], [0.0, 0.0]],
        are_judged=[[True, False], [False, False], [False, False]],
    )
    assert (found["reward/mean"], found["reward/std"]) == (0.5, 0.25)
    assert found["band_easy/reward"] == 0.5
    assert "band_medium/reward" not in found


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
    # In one group one goes forward and one backward; in the other both go the same way.
    assert found["strategy_inversion/entropy"] == pytest.approx(math.log(2))
    assert found["strategy_evaluation/entropy"] == 0


def test_a_group_teaches_by_its_advantages_not_its_verdicts():
    """Completions of equal reward teach nothing, even with different verdicts."""
    mixed, right = [judged("correct"), judged("incorrect")], [judged("correct")] * 2
    given = [[0, 0], [0.5, -0.5], [0, 0.5], [0, 0]]
    found = metrics(mixed, right, right, right, advantages=given)
    assert found["advantage/zero_groups"] == pytest.approx(2 / 4)
    assert found["groups/nonzero_std"] == pytest.approx(1 / 4)


def test_entropy_of_formats_is_over_the_verified_completions_of_the_step():
    """Shares are 1/2, 1/4 and 1/4 of four; a fifth and a sixth have no verdict."""
    easy, hard = {"band": "easy"}, {"band": "hard"}
    found = metrics(
        [judged("correct", **easy), judged("incorrect", **easy, format_="tagged")],
        [judged("correct", **hard), judged("incorrect", **hard, format_="none")],
        [judged("unverified", format_="hashes")] * 2,
        advantages=[[1, -1], [1, -1], [0, 0]],
    )
    shares = {name[7:]: x for name, x in found.items() if name[:7] == "format/"}
    assert shares.pop("entropy") == pytest.approx(1.5 * math.log(2))
    given = {"boxed": 0.5, "tagged": 0.25, "none": 0.25}
    assert shares == dict.fromkeys(FORMATS, 0.0) | given
    # Within a band there are two formats, one completion each.
    for band in ("easy", "hard"):
        assert found[f"band_{band}/format_entropy"] == pytest.approx(math.log(2))


def test_one_format_has_no_entropy_and_none_verified_no_metric():
    same = [judged("correct", band="hard")] * 2
    found = metrics(same, advantages=[[0, 0]])
    assert found["format/entropy"] == found["band_hard/format_entropy"] == 0
    nobody = metrics([judged("unverified", band="hard")] * 2, advantages=[[0, 0]])
    assert not any("format" in name for name in nobody)
    assert found.keys() - nobody.keys() >= {"format/entropy", "format/boxed"}


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
    # Problems without an account are in no band; a group of two has no pass@4.
    assert not any(name.startswith("band_unknown") for name in found)
    assert not any(name.endswith("pass@4") for name in found)


def test_pass_at_k_leaves_out_groups_with_too_few_verdicts():
    found = metrics(
        [judged("correct"), judged("incorrect")],
        [judged("incorrect"), judged("unverified")],
        advantages=[[1, -1], [0, 0]],
    )
    # c / n is 1/2 and 0/1. Only the first group has two verdicts, one of them correct.
    assert found["rollout/pass@1"] == 0.25
    assert found["rollout/pass@2"] == 1.0


def test_posterior_bands_are_reported_next_to_bands_before_rl():
    known = {"band": "hard", "posterior": "unknown"}
    found = metrics(
        [judged("correct", **known), judged("incorrect", **known)],
        [judged("correct", band="hard", posterior="medium")] * 2,
        advantages=[[1, -1], [0, 0]],
    )
    assert found["band_hard/share"] == 1
    assert found["band_hard/pass"] == 0.75
    assert "band_unknown/pass" not in found
    assert found["posterior_unknown/share"] == found["posterior_medium/share"] == 0.5
    assert found["posterior_unknown/pass"] == 0.5
    assert found["posterior_unknown/nonzero_std"] == 1
    assert found["posterior_unknown/advantage_mass"] == 1
    assert found["posterior_medium/pass"] == 1
    assert found["posterior_medium/advantage_mass"] == 0


def test_lucky_mass_is_on_right_answers_with_wrong_steps():
    """|A| is 3 + 1 + 1 + 1 on hard problems; 3 of it is on a success without steps."""
    hard, medium = {"band": "hard"}, {"band": "medium"}
    wrong_steps = {"flags": ("skipped_steps",)}
    group = [
        judged("correct", **hard, **wrong_steps),
        *[judged("incorrect", **hard, flags=("bare_answer",))] * 3,
    ]
    other = [
        judged("correct", **medium, flags=("guessed_start",)),
        judged("correct", **medium, flags=("bare_answer",)),
        *[judged("incorrect", **medium)] * 2,
    ]
    found = metrics(group, other, advantages=[[3, -1, -1, -1], [1, 1, -1, -1]])
    assert found["band_hard/wrong_steps_mass"] == pytest.approx(3 / 6)
    assert found["band_hard/guessed_start_mass"] == 0
    assert found["band_medium/wrong_steps_mass"] == pytest.approx(1 / 4)
    assert found["band_medium/guessed_start_mass"] == pytest.approx(1 / 4)
    assert found["lucky/wrong_steps_mass"] == pytest.approx(4 / 10)
    # Luck is unknown where steps are not read, and undefined without any advantage.
    text = [judged("correct", strategy=None), judged("incorrect", strategy=None)]
    assert not any("mass" in name for name in lucky(text, [1, -1]))
    assert not any("mass" in name for name in lucky(group, [0, 0, 0, 0]))


def test_positive_mass_is_on_what_is_paid_and_was_not_earned():
    """Advantages above 0 sum to 8: 3 on wrong steps, 1 on a guess, 2 on wrong answers.

    Advantages below 0 count in none of them, whatever the steps.
    """
    group = [
        judged("correct", flags=("skipped_steps",)),
        judged("correct", flags=("guessed_start",)),
        judged("correct"),
        judged("correct", flags=("bare_answer",)),
        judged("incorrect", flags=("skipped_steps",)),
        judged("incorrect"),
    ]
    found = lucky(group, [3, 1, 2, -5, 2, -3])
    assert found["lucky/positive_wrong_steps_mass"] == pytest.approx(3 / 8)
    assert found["lucky/positive_guessed_start_mass"] == pytest.approx(1 / 8)
    assert found["lucky/positive_incorrect_mass"] == pytest.approx(2 / 8)
    assert found["lucky/wrong_steps_mass"] == pytest.approx(8 / 16)
    # A rule that only punishes has no positive mass to share out.
    punished = lucky(group, [0, 0, 0, -1, -1, 0])
    assert punished["lucky/wrong_steps_mass"] == pytest.approx(1 / 2)
    assert not any("positive" in name for name in punished)


def lucky(group: list[GradedCompletion], advantages: list[float]) -> dict[str, float]:
    found = metrics(group, advantages=[advantages])
    return {name: value for name, value in found.items() if "lucky/" in name}
