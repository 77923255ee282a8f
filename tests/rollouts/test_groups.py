"""Groups with missing verdicts, and steps that drop some of their groups."""

import types

import jax
import numpy as np
import pytest

from rlvr_jax.config import Config, DifficultyConfig, DynamicSamplingConfig, TrainConfig
from rlvr_jax.data import ProblemOutcome
from rlvr_jax.data.difficulty import init_difficulty, record_outcomes
from rlvr_jax.rollouts import collect
from rlvr_jax.rollouts.collect import collect_rollouts
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.rollouts.groups import (
    ProblemGroups,
    add_history_flags,
    problem_outcomes,
    select_groups,
)
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.sampler import SamplerLayout
from rlvr_jax.types import Problem, Prompts, Rollouts, Verdict

STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}
UNKNOWN = np.array([-1])


def groups(first, *verdicts):
    """Returns a group for each of "rwuu", "wwww", ...; problems count from `first`."""
    P, G = len(verdicts), len(verdicts[0])
    numbers = np.arange(first, first + P)
    rows = [
        GradedCompletion(
            problem=Problem(id=f"p{n}", prompt="", gold="", verifier="", source=""),
            completion="",
            verdict=Verdict(status=STATUS[letter], answer=letter),
            length=1,
            finished=True,
            strategy=None,
            weight_version=0,
        )
        for n, letters in zip(numbers, verdicts, strict=True)
        for letter in letters
    ]
    return ProblemGroups(
        problem_index=numbers,
        graded=rows,
        rollouts=Rollouts(
            prompts=Prompts(
                tokens=np.ones((P, 1), np.int32),
                lengths=np.ones(P, np.int32),
                uid=numbers.astype(np.uint32),
            ),
            tokens=np.ones((P * G, 1), np.int32),
            lengths=np.ones(P * G, np.int32),
            logprobs=np.zeros((P * G, 1), np.float32),
            finished=np.ones(P * G, bool),
            weight_version=np.int32(0),
        ),
    )


def known(*correct_of_8):
    """Returns the difficulty state in which these counts of 8 samples were right."""
    return record_outcomes(
        init_difficulty(len(correct_of_8)),
        [
            ProblemOutcome(
                problem_index=i, num_graded=8, num_correct=c, answer_entropy=0.0
            )
            for i, c in enumerate(correct_of_8)
        ],
        step=0,
        num_batches=1,
        config=DifficultyConfig(),
    )


def forgotten(verdicts, *, correct_before=8):
    """Returns the letters of a group, with "F" for rows flagged as forgotten."""
    told = add_history_flags(
        groups(0, verdicts), known(correct_before), UNKNOWN, UNKNOWN
    )
    return "".join(
        "F" if "forgotten" in one.flags else letter
        for letter, one in zip(verdicts, told, strict=True)
    )


@pytest.mark.parametrize(
    ("verdicts", "flagged"),
    [
        ("rrww", "rrww"),  # half of it is still right
        ("rwww", "rFFF"),
        ("rwuu", "rwuu"),  # one of two verified rows
        ("rruw", "rruw"),  # two of three
        ("rwwu", "rFFu"),  # one of three: less than half
        ("wuuu", "Fuuu"),  # an unverified row has no flag
        ("uuuu", "uuuu"),  # nothing is known
        ("ruuu", "ruuu"),
    ],
)
def test_only_verified_rows_decide_if_a_problem_is_forgotten(verdicts, flagged):
    assert forgotten(verdicts) == flagged


@pytest.mark.parametrize(
    ("correct_before", "flagged"), [(3, "wwww"), (4, "FFFF"), (5, "FFFF")]
)
def test_a_problem_was_solved_from_one_half_on(correct_before, flagged):
    assert forgotten("wwww", correct_before=correct_before) == flagged


def test_each_problem_is_flagged_by_its_own_past():
    """Only the second problem was solved before, so only it can be forgotten."""
    past = known(0, 8, 3)
    unknown = np.full(3, -1)
    told = add_history_flags(groups(0, "rwuu", "wwuu", "wwww"), past, unknown, unknown)
    flags = [
        "".join("F" if one.flags else "-" for one in told[at : at + 4])
        for at in (0, 4, 8)
    ]
    assert flags == ["----", "FF--", "----"]


@pytest.mark.parametrize(
    ("verdicts", "graded", "correct"),
    [("rwuu", 2, 1), ("uuuu", 0, 0), ("rrru", 3, 3), ("wwww", 4, 0)],
)
def test_an_outcome_counts_verified_rows(verdicts, graded, correct):
    (found,) = problem_outcomes(groups(0, verdicts))
    assert (found.num_graded, found.num_correct) == (graded, correct)


def test_unverified_rows_do_not_change_whether_a_group_has_a_signal():
    """One group of each kind."""
    kinds = ("rwuu", "ruuu", "wuuu", "uuuu", "rrww")
    told = groups(0, *kinds)
    assert [told.has_signal(p) for p in range(5)] == [True, False, False, False, True]
    assert told.count_with_signal() == 2
    chosen = select_groups([told, groups(5, *kinds)], 4, np.random.default_rng(0))
    assert chosen.problem_index.tolist() == [0, 4, 5, 9]


def collected(monkeypatch, served, fallback):
    """Returns the batch that a step collects from these rounds of two groups each.

    `fallback` is the number of fallback rows in each round. Two groups are kept.
    """
    drawn = [groups(10 * n, *verdicts) for n, verdicts in enumerate(served)]
    now = []

    def serve(known, step, count, *, asked):
        one, num_fallback = drawn[len(now)], fallback[len(now)]
        now.append(one)
        return types.SimpleNamespace(
            problems=[one.completions_of(p)[0].problem for p in range(count)],
            problem_index=one.problem_index,
            num_fallback=num_fallback,
        )

    monkeypatch.setattr(
        collect, "sample_completions", lambda *_, **__: now[-1].rollouts
    )
    monkeypatch.setattr(collect, "grade_completions", lambda *_: now[-1].graded)
    config = Config(
        train=TrainConfig(batch_size=2, group_size=2),
        dynamic_sampling=DynamicSamplingConfig(max_rounds=2),
    )
    return collect_rollouts(
        types.SimpleNamespace(
            config=config, verifier=None, sampler_layout=SamplerLayout(mesh=None)
        ),
        types.SimpleNamespace(params=None, step=5),
        types.SimpleNamespace(next_batch=serve),
        init_difficulty(30),
        step=0,
        batch_key=jax.random.key,
        timer=StepTimer(),
    )


@pytest.mark.parametrize(
    ("served", "fallback", "share", "silent"),
    [
        # Three rounds of two groups: three of the six groups were a fallback.
        ([("ww", "wu"), ("ww", "rw"), ("uu", "rr")], (1, 0, 2), 3 / 6, 1 / 2),
        ([("rw", "wr")], (1,), 1 / 2, 0.0),
        ([("ww", "ww"), ("rw", "wr")], (0, 1), 1 / 4, 0.0),
        ([("ww", "ru"), ("uw", "ww"), ("rr", "rr")], (2, 2, 2), 1.0, 1.0),
    ],
)
def test_denominators_are_all_groups_drawn_or_all_groups_kept(
    monkeypatch, served, fallback, share, silent
):
    found = collected(monkeypatch, served, fallback)
    assert found.num_batches == len(served)
    assert found.metrics["curriculum/fallback"] == pytest.approx(share)
    assert found.metrics["dynamic_sampling/zero_variance"] == pytest.approx(silent)
    # Every group has an outcome, even if it was dropped.
    assert len(found.outcomes) == 2 * len(served)
    graded = sum(letter != "u" for pair in served for v in pair for letter in v)
    assert sum(outcome.num_graded for outcome in found.outcomes) == graded
