"""Custom rewards: how they are called, and what happens when they fail.

    # brevity.py, next to the recipe: --config.train.reward.names=brevity:few_words
    def few_words(problems, completions):        # a whole step at once
        return [1.0 / (1 + len(text.split())) for text in completions]

    async def rated(problem, completion):        # one completion, many concurrently
        return await my_service.score(problem.prompt, completion)

A function whose first parameter is called `problem` scores one completion per call. A
`def` is called for one after the other, an `async def` for up to
`train.reward.concurrency` at a time. Any other function takes all problems and
completions of a step and returns a list.

A score is a number. None or NaN means no opinion: the completion earns the mean of its
group's other scores. A completion whose call raises, or takes longer than
`train.reward.timeout_s`, earns that mean too. Failures are counted, and the first is
shown. A function for whole steps gets that time for each of its completions, and fails
as a whole. If all completions of a step fail, the run ends. With several processes,
each scores its share of the completions, but the first process scores whole steps.
"""

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set, Sized
from typing import Any, Protocol

import numpy as np

from job_jax.calls import CallLimits, CallResult, call_each
from job_jax.processes import broadcast, map_across_processes
from job_jax.schema import check
from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.config.rewards import takes_one_item
from rlvr_jax.types import Problem

Score = float | None
_MAX_SCORE = float(np.finfo(np.float32).max)  # rewards are float32


class StepFunction(Protocol):
    """Scores a step's completions at once.

    Example:
        >>> def brevity(problems, completions):
        ...     return [1.0 / (1 + len(text.split())) for text in completions]
    """

    def __call__(
        self, problems: Sequence[Problem], completions: Sequence[str]
    ) -> Sequence[Score] | Coroutine[Any, Any, Sequence[Score]]:
        """Returns a score for each completion; completion i answers problem i."""
        ...


class ItemFunction(Protocol):
    """Scores one completion; its first parameter is called `problem`.

    Example:
        >>> async def is_short(problem, completion):
        ...     return float(len(completion) < 100)
    """

    def __call__(
        self, problem: Problem, completion: str
    ) -> Score | Coroutine[Any, Any, Score]:
        """Returns the completion's score."""
        ...


class FunctionReward(Reward):
    """A custom function as a part of the reward."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns the function's scores. Raises ConfigError and CallError."""
        return score_by_calls(
            self._name, self._function, completions, completions.limits
        )


def score_by_calls(
    name: str,
    function: Callable[..., Any],
    completions: CompletionTexts,
    limits: CallLimits,
) -> Scores:
    """Returns the scores of `call_reward`, with its calls. CallError if all failed."""
    outcomes = call_reward(
        name, function, completions.problems, completions.texts, limits
    )
    completions.grader.check_failures(
        f"reward {name!r}", completions.problems, outcomes
    )
    return Scores([outcome.value for outcome in outcomes], outcomes)


def call_reward(
    name: str,
    function: Callable[..., Any],
    problems: Sequence[Problem],
    completions: Sequence[str],
    limits: CallLimits,
) -> list[CallResult]:
    """Returns each completion's outcome; its value is a number, NaN for no opinion.

    All processes of a run get the same outcomes. Raises ConfigError if a function for
    whole steps returns the wrong number of scores.
    """
    if takes_one_item(function):
        items = list(zip(problems, completions, strict=True))

        def score_share(own: Sequence[tuple[Problem, str]]) -> list[list[Any]]:
            found = call_each(function, own, limits)
            return [list(_with_score(outcome)) for outcome in found]

        return [
            CallResult(*fields) for fields in map_across_processes(items, score_share)
        ]

    def score_all() -> list[Any]:
        whole = CallLimits(timeout_s=limits.timeout_s * max(1, len(completions)))
        (outcome,) = call_each(function, [(problems, completions)], whole)
        if outcome.failure is None and (fault := _step_fault(outcome.value)):
            outcome = CallResult(failure="error", reason=fault)
        if outcome.failure:
            return list(outcome)
        scores = [_with_score(CallResult(value)) for value in outcome.value]
        return [list(map(list, scores)), *outcome[1:]]

    values, failure, reason, seconds = broadcast(score_all)
    if failure:
        return [CallResult(math.nan, failure, reason, seconds)] * len(completions)
    check(
        len(values) == len(completions),
        f"reward {name!r} returned {len(values)} scores for {len(completions)} "
        "completions; return one for each, None for no opinion",
    )
    return [CallResult(*fields)._replace(seconds=seconds) for fields in values]


def _step_fault(value: Any) -> str:
    """Returns why a value is not a list of scores, "" if it is one."""
    is_list = isinstance(value, Sized) and not isinstance(value, str | bytes | Mapping)
    if getattr(value, "ndim", 1) != 1:
        return f"returned an array of shape {tuple(value.shape)}, which is not [B]"
    if is_list and not isinstance(value, Set):
        return ""
    return f"returned {_shown(value)}, which is not a list of scores"


def describe_score_fault(value: Any) -> str:
    """Returns why a value is not a score, "" if it is one."""
    is_scalar = not isinstance(value, str | bytes) and np.ndim(value) == 0
    try:
        score = float(value) if is_scalar else math.inf
    except (TypeError, ValueError, OverflowError):
        score = math.inf
    if math.isnan(score) or abs(score) <= _MAX_SCORE:
        return ""
    return f"returned {_shown(value)}, which is not a finite number"


def _shown(value: object) -> str:
    """Returns a value in one line, with its type unless it is a plain number."""
    text = f"{' '.join(repr(value).split()):.60}"
    if value is None or isinstance(value, int | float):
        return text
    return f"{text} (a {type(value).__name__})"


def _with_score(outcome: CallResult) -> CallResult:
    """Returns the outcome with a float value, or an error if it is not a number."""
    value = math.nan if outcome.failure or outcome.value is None else outcome.value
    if fault := describe_score_fault(value):
        return outcome._replace(value=math.nan, failure="error", reason=fault)
    return outcome._replace(value=float(value))
