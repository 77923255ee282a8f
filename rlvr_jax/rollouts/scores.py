"""Scores of completion texts, for rewards other than the verdict."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from job_jax.calls import CallLimits, Outcome, call_metrics
from rlvr_jax.config import RewardConfig
from rlvr_jax.config.rewards import REWARDS
from rlvr_jax.rollouts.judged import JudgedText
from rlvr_jax.rollouts.own_rewards import call_reward
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import (
    calibration_metrics,
    parse_confidence,
    strip_confidence,
)
from rlvr_jax.verifiers.controls import coin_flip, corrupt_gold
from rlvr_jax.verifiers.grader import Grader
from rlvr_jax.verifiers.truncation import reject_cut_answers

# Exempt from the cap on unfinished thinking: `random` reads no text, and a missing
# confidence already earns -1.
_KEPT_WHILE_THINKING = {"random", "confidence"}
_REWARD_BY_STATUS = {"correct": 1.0, "incorrect": 0.0, "unverified": math.nan}


class CompletionScores(NamedTuple):
    """Scores by reward, and the calls of custom rewards and of the judge."""

    values: dict[str, np.ndarray]  # [B], NaN: no opinion
    calls: dict[str, list[Outcome]]


def score_completions(
    config: RewardConfig,
    problems: Sequence[Problem],
    completions: Sequence[str],
    *,
    judge: Grader,
    seed: int,
    group_size: int,
    judged: Sequence[JudgedText] | None = None,
) -> CompletionScores:
    """Returns the scores [B] of every named reward that reads a completion's text.

      format       1 if the answer has the form that the verifier expects, else 0
      confidence   the stated q, NaN if none is stated
      random       0 or 1, a function of (seed, problem, sample)
      wrong_label  1 if the corrupted gold is met, 0 if not, NaN if unverified
      judge        the judge's score from 0 to 1, NaN if it gives none

    and custom rewards, see `own_rewards`. `correctness` reads verdicts and has no
    entry. `completions` are the texts of `judged`; with unfinished thinking one earns
    as much as an empty one, and at most 0. Rows are group-major. `reward_parts` turns
    scores into rewards. Raises ConfigError if a custom reward returns the wrong number
    of scores, and CallError if it, or the judge, fails on all completions.
    """
    calls: dict[str, list[Outcome]] = {}

    def scores(name: str) -> Sequence[float | None]:
        if name == "format":
            return [
                _format_score(problem, text)
                for problem, text in zip(problems, completions, strict=True)
            ]
        if name == "confidence":
            return [parse_confidence(text) for text in completions]
        if name == "random":
            return [
                float(coin_flip(seed, problem.id, row % group_size))
                for row, problem in enumerate(problems)
            ]
        if name == "wrong_label":
            return _wrong_label_scores(problems, completions, judge, judged)
        limits = CallLimits(timeout_s=config.timeout_s, concurrency=config.concurrency)
        function = REWARDS.load(name)
        if name == "judge":
            function, limits = judge.judge.score, judge.judge.limits
        outcomes = call_reward(name, function, problems, completions, limits)
        judge.check_failures(f"reward {name!r}", problems, outcomes)
        calls[name] = outcomes
        return [outcome.value for outcome in outcomes]

    values = {
        name: np.array(
            [math.nan if score is None else score for score in scores(name)], np.float32
        )
        for name in config.names
        if name != "correctness"
    }
    if judged is not None:
        _cap_unfinished_thinking(values, judged)
    return CompletionScores(values, calls)


def _wrong_label_scores(
    problems: Sequence[Problem],
    completions: Sequence[str],
    judge: Grader,
    judged: Sequence[JudgedText] | None,
) -> list[float]:
    """Returns 1 where the corrupted gold is met, 0 where not, NaN where unverified."""
    corrupted = [corrupt_gold(problem) for problem in problems]
    verdicts = judge(corrupted, completions)
    if judged is not None:
        cut = [text.was_cut for text in judged]
        verdicts = reject_cut_answers(corrupted, completions, verdicts, was_cut=cut)
    return [_REWARD_BY_STATUS[verdict.status] for verdict in verdicts]


def _cap_unfinished_thinking(
    values: dict[str, np.ndarray], judged: Sequence[JudgedText]
) -> None:
    """Sets scores above 0 to 0 where thinking has not ended."""
    is_thinking_B = np.array([text.is_thinking for text in judged])
    for name in values.keys() - _KEPT_WHILE_THINKING:
        capped_B = np.minimum(np.nan_to_num(values[name]), 0)
        values[name] = np.where(is_thinking_B, capped_B, values[name])


def _format_score(problem: Problem, text: str) -> float:
    """Returns 1 if the answer has the form that its verifier expects, else 0."""
    verifier = get_verifier(problem.verifier)
    return float(verifier.is_well_formed(problem, strip_confidence(text)))


def reward_call_metrics(calls: Mapping[str, Sequence[Outcome]]) -> dict[str, float]:
    """Returns failure rates and times of calls to custom rewards and to the judge.

    reward_time_limit/NAME and reward_failed/NAME are fractions of the completions.
    time/reward/NAME_mean_s and _max_s are the seconds of a call.
    """
    metrics: dict[str, float] = {}
    for name, outcomes in calls.items():
        found = call_metrics(outcomes)
        metrics |= {
            f"reward_time_limit/{name}": found["time_limit"],
            f"reward_failed/{name}": found["failed"],
            f"time/reward/{name}_mean_s": found["mean_s"],
            f"time/reward/{name}_max_s": found["max_s"],
        }
    return metrics


def confidence_metrics(
    raw_scores: Mapping[str, np.ndarray], verdicts: Sequence[Verdict]
) -> dict[str, float]:
    """Returns confidence/brier, /ece, /auroc and /stated, {} if confidence is not read.

    Unverified completions are left out, because they have no verdict to compare q with.
    """
    if "confidence" not in raw_scores:
        return {}
    verified_B = np.array([verdict.status != "unverified" for verdict in verdicts])
    correct_B = np.array([verdict.status == "correct" for verdict in verdicts])
    if not verified_B.any():
        return {}
    metrics = calibration_metrics(
        raw_scores["confidence"][verified_B], correct_B[verified_B]
    )
    return {f"confidence/{name}": value for name, value in metrics.items()}
