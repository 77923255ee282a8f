"""Calls each custom reward once before a run starts, on a real problem."""

import dis
import inspect
import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from job_jax.calls import CallLimits
from job_jax.schema import ConfigError, check
from job_jax.working import working
from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.config import RewardConfig
from rlvr_jax.config.rewards import REWARDS, takes_one_item
from rlvr_jax.rewards.function import FunctionReward, call_reward
from rlvr_jax.rewards.parts import load_reward
from rlvr_jax.rollouts.scores import read_values
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.grader import Grader, describe_fields

_LARGE = 1e4  # float32 has steps of 0.001 here
_HUGE = 1e18  # its square is near float32's largest number
_REFUSAL = f"{ConfigError.__name__}: "
_NUM_TRIALS = 2  # completions for a reward that scores a whole step


def try_setup_rewards(setup: RunSetup) -> list[str]:
    """Returns `try_rewards` of an opened run, on its first train problems."""
    problems = setup.problems("train", _NUM_TRIALS)
    return try_rewards(setup.config.train.reward, problems, setup.verifier)


def try_rewards(
    config: RewardConfig, problems: Sequence[Problem], grader: Grader | None = None
) -> list[str]:
    """Returns each custom reward's first score, and warnings, after one call of it.

    A reward for one item gets the first problem, and a reward for whole steps, or a
    class (which may ask the `grader`), gets two.
    The completion is the problem's worked solution, or else its gold as the verifier
    expects it. Raises ConfigError if a reward raises, or returns something else than
    scores, or huge ones. Raises CallError if an `async def` blocks.
    """
    lines = []
    for name, weight in zip(config.names, config.weights, strict=True):
        if name not in REWARDS.names:
            with working(f"trying reward {name}"):
                reward = load_reward(name)
                if isinstance(reward, FunctionReward):
                    lines += _try_function(name, weight, config, problems)
                else:
                    lines += _try_class(name, weight, reward, config, problems, grader)
    return lines


def _try_class(
    name: str,
    weight: float,
    reward: Reward,
    config: RewardConfig,
    problems: Sequence[Problem],
    grader: Grader | None,
) -> list[str]:
    trials = [problems[i % len(problems)] for i in range(_NUM_TRIALS)]
    try:
        scores = reward.score(
            CompletionTexts(
                problems=trials,
                texts=[_write_trial(problem) for problem in trials],
                was_cut=[False] * len(trials),
                group_size=len(trials),
                seed=0,
                grader=grader,
                limits=CallLimits(timeout_s=config.timeout_s),
            )
        )
    except Exception as error:  # a user's code
        raise ConfigError(
            f"reward {name!r} raised {type(error).__name__}: {error}, tried on "
            f"problem {trials[0].id!r}{describe_fields(trials[0], error)}; `score` "
            "must return Scores, with a number for each text"
        ) from error
    if scores is None:
        return []
    check(
        isinstance(scores, Scores),
        f"reward {name!r} returned {scores!r:.60} for {len(trials)} texts; `score` "
        "must return Scores",
    )
    values = read_values(name, scores, len(trials)).tolist()
    return _describe_scores(name, weight, values, trials[0])


def _try_function(
    name: str, weight: float, config: RewardConfig, problems: Sequence[Problem]
) -> list[str]:
    function = REWARDS.load(name)
    is_item = takes_one_item(function)
    count = 1 if is_item else _NUM_TRIALS
    trials = [problems[i % len(problems)] for i in range(count)]
    if check_records := getattr(function, "check_records", None):
        check_records(problems)
    outcomes = call_reward(
        name,
        function,
        trials,
        [_write_trial(problem) for problem in trials],
        CallLimits(timeout_s=config.timeout_s, concurrency=config.concurrency),
    )
    for problem, outcome in zip(trials, outcomes, strict=True):
        if outcome.failure == "time_limit":
            return [
                f"warning: reward {name!r} took longer than train.reward.timeout_s="
                f"{config.timeout_s:g} on problem {problem.id!r}; if the first call is "
                "slow, open its model or connection at import"
            ]
        if outcome.reason.startswith(_REFUSAL):  # by an adapter, complete in itself
            raise ConfigError(outcome.reason.removeprefix(_REFUSAL))
        if outcome.failure:
            did = "" if outcome.reason.startswith("returned ") else "raised "
            raise ConfigError(
                f"reward {name!r} {did}{outcome.reason}, tried on "
                f"problem {problem.id!r}{describe_fields(problem, outcome.reason)}; "
                f"{_expected(is_item)}"
            )
    scores = [outcome.value for outcome in outcomes]
    if all(map(math.isnan, scores)):
        return [_warn_of_silence(name, function, trials[0], is_item)]
    return [
        *_describe_scores(name, weight, scores, trials[0]),
        *_try_empty(name, function, trials, config),
    ]


def _try_empty(
    name: str,
    function: Callable[..., Any],
    trials: Sequence[Problem],
    config: RewardConfig,
) -> list[str]:
    """Returns a warning if a reward fails on an empty completion, which RL will make.

    A function that scores a whole step and fails on one completion ends the run.
    """
    limits = CallLimits(timeout_s=config.timeout_s, concurrency=config.concurrency)
    outcome = call_reward(name, function, trials, [""] * len(trials), limits)[0]
    if outcome.failure != "error":
        return []
    return [
        f"warning: reward {name!r} fails on an empty completion ({outcome.reason}); "
        "such completions earn their group's mean, or end the run if it scores whole "
        "steps"
    ]


def _describe_scores(
    name: str, weight: float, scores: Sequence[float], problem: Problem
) -> list[str]:
    """Returns the first score in a line, and warnings about all of them."""
    shown = "no opinion" if math.isnan(scores[0]) else f"{scores[0]:g}"
    trial = " ".join(_write_trial(problem).split())
    kind = "the worked solution" if problem.solution else "the gold"
    return [
        f"reward {name!r}: {shown} for {textwrap.shorten(trial, 60)!r}, {kind} of "
        f"problem {problem.id!r}",
        *_warn_of_size(name, weight, [s for s in scores if not math.isnan(s)]),
    ]


def _expected(is_item: bool) -> str:
    one = "a finite number, or None for no opinion"
    return f"it must return {one if is_item else f'a list with {one}, for each'}"


def _write_trial(problem: Problem) -> str:
    """Returns a completion that a reward should be able to read."""
    return problem.solution or get_verifier(problem.verifier).state_gold(problem)


def _warn_of_silence(
    name: str, function: Callable[..., Any], problem: Problem, is_item: bool
) -> str:
    """Returns a warning; raises ConfigError if the function never returns a value."""
    if returns_nothing(function):
        raise ConfigError(
            f"reward {name!r} returned None, and has no other return; "
            f"{_expected(is_item)}"
        )
    return (
        f"warning: reward {name!r} has no opinion (None or NaN) on a correct "
        f"completion of problem {problem.id!r}; such completions earn their group's "
        "mean"
    )


def _warn_of_size(name: str, weight: float, scores: Sequence[float]) -> list[str]:
    size = max((max(abs(score), abs(score * weight)) for score in scores), default=0.0)
    if size > _HUGE:
        raise ConfigError(
            f"reward {name!r} returned {max(scores, key=abs):g}, whose square float32 "
            "cannot hold, so all advantages would be 0; divide it by a constant"
        )
    if size <= _LARGE:
        return []
    return [
        f"warning: reward {name!r} is as large as {size:g}: float32 loses differences "
        f"below {size / 2**23:.1g}, and with them advantages; subtract or divide by a "
        "constant, to about 1"
    ]


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Returns whether each return of a Python function is `return None`, or missing."""
    function = getattr(function, "adapts", function)  # of an adapter, the user's own
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    instructions = list(dis.get_instructions(code))
    for before, now in itertools.pairwise(instructions):
        loads_none = (before.opname, before.argval) == ("LOAD_CONST", None)
        if now.opname == "RETURN_VALUE" and not loads_none:
            return False
        if now.opname == "RETURN_CONST" and now.argval is not None:
            return False
    return True
