"""Scores of completion texts, for rewards other than the verdict."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from job_jax.calls import CallLimits, CallResult, call_metrics
from job_jax.processes import broadcast
from job_jax.schema import check
from rlvr_jax.algorithms.reward import CompletionTexts, Scores
from rlvr_jax.config import RewardConfig
from rlvr_jax.rewards.function import describe_score_fault
from rlvr_jax.rewards.parts import load_reward
from rlvr_jax.rollouts.judged import JudgedText
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.confidence import calibration_metrics
from rlvr_jax.verifiers.grader import Grader


class CompletionScores(NamedTuple):
    """Scores by reward, and the calls of custom rewards and of the judge."""

    values: dict[str, np.ndarray]  # [B], NaN: no opinion
    calls: dict[str, list[CallResult]]


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

    `rlvr_jax.rewards` has a file for each of ours; `correctness` reads verdicts and has
    no entry. All processes take the scores of process 0. `completions`
    are the texts of `judged`; with unfinished thinking one earns as much as an empty
    one, and at most 0. Rows are group-major. `rewards.parts.reward_parts` turns scores
    into rewards. Raises ConfigError if a custom reward returns the wrong number of
    scores, and CallError if it, or the judge, fails on all completions.
    """
    completion_texts = CompletionTexts(
        problems=problems,
        texts=completions,
        was_cut=[text.was_cut for text in judged or ()] or [False] * len(completions),
        group_size=group_size,
        seed=seed,
        grader=judge,
        limits=CallLimits(timeout_s=config.timeout_s, concurrency=config.concurrency),
    )
    values: dict[str, np.ndarray] = {}
    calls: dict[str, list[CallResult]] = {}
    for name in config.names:
        reward = load_reward(name)
        scores = reward.score(completion_texts)
        if scores is None:
            continue
        values[name] = _take_first_process(read_values(name, scores, len(completions)))
        if judged is not None and not reward.pays_unfinished_thinking:
            values[name] = _cap_unfinished_thinking(values[name], judged)
        if scores.calls is not None:
            calls[name] = list(scores.calls)
    return CompletionScores(values, calls)


def _take_first_process(values_B: np.ndarray) -> np.ndarray:
    """Returns the values of process 0: a class may score otherwise in another."""
    return np.array(broadcast(values_B.tolist), np.float32)


def read_values(name: str, scores: Scores, count: int) -> Float[np.ndarray, " B"]:
    """Returns a reward's scores of `count` completions, NaN for no opinion.

    Raises ConfigError if there is another number of scores, or one is not finite.
    """
    values = list(scores.values)
    check(
        len(values) == count,
        f"reward {name!r} returned {len(values)} scores for {count} completions; "
        "return one for each, None for no opinion",
    )
    faults = [describe_score_fault(value) for value in values if value is not None]
    fault = next(filter(None, faults), "")
    check(
        not fault,
        f"reward {name!r} {fault}; return a finite number for each completion, None "
        "for no opinion",
    )
    return np.array([math.nan if value is None else value for value in values], "f4")


def _cap_unfinished_thinking(
    values_B: np.ndarray, judged: Sequence[JudgedText]
) -> np.ndarray:
    """Returns the scores, with those above 0 set to 0 where thinking has not ended."""
    is_thinking_B = np.array([text.is_thinking for text in judged])
    return np.where(is_thinking_B, np.minimum(np.nan_to_num(values_B), 0), values_B)


def reward_call_metrics(calls: Mapping[str, Sequence[CallResult]]) -> dict[str, float]:
    """Returns failure rates and times of calls to custom rewards and to the judge.

    reward_time_limit/NAME, reward_failed/NAME and reward_no_opinion/NAME (None or NaN)
    are fractions of the completions.
    time/reward/NAME_mean_s and _max_s are the seconds of a call.
    """
    metrics: dict[str, float] = {}
    for name, outcomes in calls.items():
        found = call_metrics(outcomes)
        metrics |= {
            f"reward_time_limit/{name}": found["time_limit"],
            f"reward_failed/{name}": found["failed"],
            f"reward_no_opinion/{name}": np.mean(
                [not o.failure and math.isnan(o.value) for o in outcomes]
            ).item(),
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
