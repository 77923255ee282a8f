"""Scores of completions' texts: what rewards beside the verdict are made of."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from job_jax.schema import check
from rlvr_jax.config import RewardConfig
from rlvr_jax.config.learn import REWARDS
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import (
    calibration_metrics,
    parse_confidence,
    strip_confidence,
)
from rlvr_jax.verifiers.controls import coin_flip, corrupt_gold
from rlvr_jax.verifiers.grader import Grader

_REWARD_BY_STATUS = {"correct": 1.0, "incorrect": 0.0, "unverified": math.nan}


class Reward(Protocol):
    """A reward of your own: scores a batch of completions, on the host.

    Name it in `train.reward.names` as "package.module:name". None or NaN is no opinion
    and earns the mean of its group's other scores. Of several processes each calls it
    with all completions, so it must be a function of its arguments.

    Example:
        >>> def brevity(problems, completions):
        ...     return [1.0 / (1 + len(text.split())) for text in completions]
    """

    def __call__(
        self, problems: Sequence[Problem], completions: Sequence[str]
    ) -> Sequence[float | None]:
        """Returns a score for each completion of the problem beside it."""
        ...


def score_completions(
    config: RewardConfig,
    problems: Sequence[Problem],
    completions: Sequence[str],
    *,
    judge: Grader,
    seed: int,
    group_size: int,
) -> dict[str, np.ndarray]:
    """Returns the scores [B] of every named reward that reads a completion's text.

      format       1 if the answer stands in the form asked for, else 0
      confidence   the stated q, NaN if none is stated
      random       0 or 1, a function of (seed, problem, sample)
      wrong_label  1 if the corrupted gold is met, 0 if not, NaN unverified

    and a user's own, see `Reward`. `correctness` reads verdicts and has no entry. Rows
    are group-major. `learn.rewards.reward_parts` makes rewards of the scores. Raises
    ConfigError where a user's reward returns another number of scores.
    """

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
            corrupted = [corrupt_gold(problem) for problem in problems]
            return [
                _REWARD_BY_STATUS[verdict.status]
                for verdict in judge(corrupted, completions)
            ]
        reward: Reward = REWARDS.load(name)
        return reward(problems, completions)

    raw_scores: dict[str, np.ndarray] = {}
    for name in config.names:
        if name == "correctness":
            continue
        values = scores(name)
        check(
            len(values) == len(completions),
            f"reward {name!r} returned {len(values)} scores for {len(completions)} "
            "completions; return one for each, None for no opinion",
        )
        raw_scores[name] = np.array(
            [math.nan if value is None else value for value in values], np.float32
        )
    return raw_scores


def _format_score(problem: Problem, text: str) -> float:
    """Returns 1 if the answer stands in the form that its verifier asks for, else 0."""
    verifier = get_verifier(problem.verifier)
    return float(verifier.is_well_formed(problem, strip_confidence(text)))


def confidence_metrics(
    raw_scores: Mapping[str, np.ndarray], verdicts: Sequence[Verdict]
) -> dict[str, float]:
    """Returns confidence/brier, /ece, /auroc and /stated, {} where none is read.

    Unverified completions are left out: there is nothing to set their q against.
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
