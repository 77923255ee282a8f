"""Custom rewards: for one item or a whole step, plain or async, and their failures."""

import asyncio
import math
import types

import numpy as np
import pytest

from job_jax import processes
from job_jax.calls import CallError, CallLimits
from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.config.rewards import REWARDS, takes_one_item
from rlvr_jax.rewards import function as custom
from rlvr_jax.rewards.function import call_reward
from rlvr_jax.rollouts.scores import reward_call_metrics, score_completions
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.grader import Grader

PROBLEMS = [
    Problem(id=name, prompt=name, gold="", verifier="exact", source="test")
    for name in "aabb"
]
TEXTS = ["1", "22", "", "4444"]
LIMITS = CallLimits(timeout_s=0.5, concurrency=8)


def length(problem, completion):
    if completion == "raise":
        raise ValueError(problem.id)
    while completion == "hang":
        pass
    return {"none": None, "nan": math.nan, "inf": math.inf, "text": "much"}.get(
        completion, len(completion)
    )


async def length_async(problem, completion):
    if completion == "hang":
        await asyncio.Event().wait()
    return length(problem, completion)


def lengths(problems, completions):
    return [length(*item) for item in zip(problems, completions, strict=True)]


async def lengths_async(problems, completions):
    await asyncio.sleep(0)
    return np.array(lengths(problems, completions))


def called(function, texts=TEXTS):
    return call_reward("m:f", function, PROBLEMS[: len(texts)], texts, LIMITS)


@pytest.mark.parametrize(
    ("function", "by_item"),
    [
        (length, True),
        (length_async, True),
        (lengths, False),
        (lengths_async, False),
        (lambda *_: [1.0], False),
        (lambda p, c: [1.0], False),
    ],
)
def test_the_name_of_the_first_parameter_says_what_it_takes(function, by_item):
    assert takes_one_item(function) is by_item


@pytest.mark.parametrize("function", [length, length_async, lengths, lengths_async])
def test_all_four_kinds_score_alike(function):
    outcomes = called(function)
    assert [outcome.value for outcome in outcomes] == [1.0, 2.0, 0.0, 4.0]
    assert [outcome.failure for outcome in outcomes] == [None] * 4


@pytest.mark.parametrize("function", [length, length_async])
def test_an_item_that_hangs_or_raises_has_no_score_and_its_neighbors_do(function):
    outcomes = called(function, ["hang", "1", "raise", "22"])
    np.testing.assert_array_equal(
        [outcome.value for outcome in outcomes], [math.nan, 1, math.nan, 2]
    )
    assert [(o.failure, o.reason) for o in outcomes] == [
        ("time_limit", "time limit 0.5 s"),
        (None, ""),
        ("error", "ValueError: b"),
        (None, ""),
    ]


@pytest.mark.parametrize("function", [length, length_async, lengths])
def test_no_opinion_is_not_a_failure_but_a_non_number_is(function):
    outcomes = called(function, ["none", "nan", "inf", "text"])
    assert all(math.isnan(outcome.value) for outcome in outcomes)
    assert [(o.failure, o.reason) for o in outcomes] == [
        (None, ""),
        (None, ""),
        ("error", "returned inf, which is not a finite number"),
        ("error", "returned 'much' (a str), which is not a finite number"),
    ]


def test_a_step_at_once_has_the_time_of_all_its_items_and_fails_as_one(monkeypatch):
    limits = []
    call_each = custom.call_each

    def recorded(function, arguments, given):
        limits.append(given.timeout_s)
        return call_each(function, arguments, given)

    monkeypatch.setattr(custom, "call_each", recorded)
    outcomes = called(lengths, ["1", "raise", "22", "1"])
    assert limits == [4 * 0.5]
    assert [o.failure for o in outcomes] == ["error"] * 4
    assert {o.reason for o in outcomes} == {"ValueError: a"}
    (outcome, _) = called(lambda problems, completions: None, ["1", "2"])
    assert outcome.reason == "returned None, which is not a list of scores"


@pytest.mark.parametrize("count", [3, 5])
def test_another_number_of_scores_is_refused(count):
    with pytest.raises(ConfigError, match=f"'m:f' returned {count} scores for 4 comp"):
        called(lambda problems, completions: [1.0] * count)


def scores(function, texts, monkeypatch):
    monkeypatch.setattr(REWARDS, "load", lambda name: function)
    with Grader(VerifierConfig()) as grader:
        return score_completions(
            types.SimpleNamespace(names=("m:f",), timeout_s=0.5, concurrency=2),
            PROBLEMS,
            texts,
            judge=grader,
            seed=0,
            group_size=2,
        )


def test_failures_are_counted_by_cause_and_the_first_is_shown(monkeypatch, capsys):
    values, calls = scores(length, ["1", "hang", "raise", "22"], monkeypatch)
    np.testing.assert_array_equal(values["m:f"], [1, math.nan, math.nan, 2])
    metrics = reward_call_metrics(calls)
    assert metrics["reward_time_limit/m:f"] == 0.25
    assert metrics["reward_failed/m:f"] == 0.25
    assert metrics["reward_no_opinion/m:f"] == 0
    assert metrics["time/reward/m:f_max_s"] >= 0.5
    assert capsys.readouterr().err == (
        "reward 'm:f': time limit 0.5 s (problem a); such completions count as "
        "unverified; only the first is shown\n"
    )


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_completions_without_an_opinion_are_counted(monkeypatch, nothing):
    def some(problem, completion):
        return nothing if completion == "?" else 1.0

    _, calls = scores(some, ["?", "1", "?", "?"], monkeypatch)
    metrics = reward_call_metrics(calls)
    assert metrics["reward_no_opinion/m:f"] == 0.75
    assert metrics["reward_failed/m:f"] == 0


@pytest.mark.parametrize("function", [length, length_async, lengths, lengths_async])
def test_a_reward_that_always_raises_ends_the_run_in_one_line(monkeypatch, function):
    with pytest.raises(CallError) as raised:
        scores(function, ["raise"] * 4, monkeypatch)
    assert str(raised.value) == (
        "reward 'm:f' failed on all of 4 completions; the first: ValueError: a"
    )


def test_of_two_processes_each_scores_its_items_and_the_first_a_step_at_once(
    monkeypatch,
):
    """Each process uses the scores that the other process sent."""
    seen = []

    def gather(value):
        seen.append(value)
        theirs = [[9.0, None, "", 0.0]] * 2
        return [value, theirs]

    monkeypatch.setattr(processes, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "process_index", lambda: 0)
    monkeypatch.setattr(processes, "is_primary", lambda: True)
    monkeypatch.setattr(processes, "all_gather_json", gather)
    assert [o.value for o in called(length)] == [1.0, 2.0, 9.0, 9.0]
    assert [len(value) for value in seen] == [2]
    assert [o.value for o in called(lengths)] == [1.0, 2.0, 0.0, 4.0]
    monkeypatch.setattr(processes, "is_primary", lambda: False)
    monkeypatch.setattr(
        processes, "all_gather_json", lambda value: [seen[-1] if value is None else 0]
    )
    assert [o.value for o in called(lengths)] == [1.0, 2.0, 0.0, 4.0]
