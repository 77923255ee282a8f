"""Difficulty estimates of the train problems: a posterior of each pass rate, scores.

Difficulty is relative to the policy, and the policy changes. A problem's evidence
therefore fades: every visit multiplies the earlier counts by `decay`. With d the decay,
and k_v of n_v graded completions correct at visit v of V, the posterior under Jeffreys'
prior is

    Beta(1/2 + sum_v d^(V-v) k_v, 1/2 + sum_v d^(V-v) (n_v - k_v))

Old evidence thus fades at the rate d^visits: with d = 0.7, a sixth is left after five
visits. The decay is our choice.

A problem has two bands. The initial band depends only on the samples before RL: on
their plain pass rate. With 8 samples and the default cuts, these are Easy@8, Medium@8
and Hard@8 of https://arxiv.org/abs/2605.28388. The posterior band is the current
estimate: the band with at least `min_posterior_mass` of the posterior's mass, or
`unknown` if no band has that much. No success in 8 samples is unknown (mass 0.70 below
1/16), no success in 16 is hard (0.85). Telemetry, RFGO and alarms use
`telemetry_bands`.

The estimates are a pure function of the visits. They live on the host, and a checkpoint
holds them as plain JSON.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.config import DifficultyConfig
from rlvr_jax.types import BANDS

PRIOR_COUNT = 0.5  # pseudo-counts of correct and of incorrect completions
SOLVED_PASS_RATE = 0.5  # a visit with at least this share correct solves the problem
_COUNT_FIELDS = (
    "attempts",
    "correct",
    "initial_attempts",
    "initial_correct",
    "num_visits",
    "forgetting_events",
    "num_graded_visits",
)
_SUM_FIELDS = ("discounted_correct", "discounted_incorrect", "sum_p", "sum_p2")
_LAST_FIELDS = ("last_pass_rate", "answer_entropy", "vcrl_score")
_MAX_HISTORY = 16  # visits of a problem whose counts are kept one by one
INITIAL_STEP = -1  # the step of visits before RL


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemOutcome:
    """Counts of one group of completions. Written by `rollouts`, read here.

    `answer_entropy` is over the distinct answers, in nats; 0 if all are the same.
    """

    problem_index: int  # within the pool
    num_graded: int
    num_correct: int
    answer_entropy: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difficulty:
    """The estimates of a pool's N problems. Read by curricula, advantages, metrics.

    The discounted counts fade by `decay`. `attempts` and `correct` count all
    completions, `initial_attempts` and `initial_correct` those before RL.
    `last_pass_rate`, `answer_entropy` (both of the last visit) and `vcrl_score` (a
    moving average) are NaN before a problem's first graded visit.
    """

    num_batches: int  # served by curricula so far
    discounted_correct: Float[np.ndarray, " N"]
    discounted_incorrect: Float[np.ndarray, " N"]
    attempts: Int[np.ndarray, " N"]
    correct: Int[np.ndarray, " N"]
    initial_attempts: Int[np.ndarray, " N"]
    initial_correct: Int[np.ndarray, " N"]
    num_visits: Int[np.ndarray, " N"]
    # Visits that failed on the problem after the visit before had solved it.
    forgetting_events: Int[np.ndarray, " N"]
    sum_p: Float[np.ndarray, " N"]  # sum over graded visits of the share correct
    sum_p2: Float[np.ndarray, " N"]  # ... and of its square
    num_graded_visits: Int[np.ndarray, " N"]  # visits with a verdict
    last_pass_rate: Float[np.ndarray, " N"]
    answer_entropy: Float[np.ndarray, " N"]
    vcrl_score: Float[np.ndarray, " N"]
    history: Mapping[int, tuple[tuple[int, int, int], ...]]  # (step, graded, correct)

    @property
    def size(self) -> int:
        """Returns N."""
        return len(self.discounted_correct)

    @property
    def mean(self) -> Float[np.ndarray, " N"]:
        """Returns the posterior's mean pass rate, 1/2 before any evidence."""
        return (self.discounted_correct + PRIOR_COUNT) / (
            self.discounted_correct + self.discounted_incorrect + 2 * PRIOR_COUNT
        )

    @property
    def learning_signal(self) -> Float[np.ndarray, " N"]:
        """Returns the posterior's mean of p (1 - p), a group's learning signal."""
        a_N = self.discounted_correct + PRIOR_COUNT
        b_N = self.discounted_incorrect + PRIOR_COUNT
        return a_N * b_N / ((a_N + b_N) * (a_N + b_N + 1))

    @property
    def is_forgotten(self) -> Bool[np.ndarray, " N"]:
        """Returns which problems were solved once, but not at their last visit."""
        return (self.forgetting_events > 0) & (self.last_pass_rate < SOLVED_PASS_RATE)

    @property
    def seldom_judged(self) -> Bool[np.ndarray, " N"]:
        """Returns which problems had more visits without a verdict than with one.

        Their posterior hardly changes, even if the policy does.
        """
        return 2 * self.num_graded_visits < self.num_visits

    @property
    def pass_variance(self) -> Float[np.ndarray, " N"]:
        """Returns the variance of the share correct over a problem's visits."""
        count_N = np.maximum(self.num_graded_visits, 1)
        return np.maximum(self.sum_p2 / count_N - (self.sum_p / count_N) ** 2, 0.0)

    def cdf(self, pass_rate: float) -> Float[np.ndarray, " N"]:
        """Returns the posterior's mass below a pass rate."""
        # Imported here, because scipy takes a third of a second and recipes need none.
        from scipy.special import betainc  # noqa: PLC0415

        return betainc(
            self.discounted_correct + PRIOR_COUNT,
            self.discounted_incorrect + PRIOR_COUNT,
            pass_rate,
        )

    def posterior_bands(self, config: DifficultyConfig) -> Int[np.ndarray, " N"]:
        """Returns each problem's band by its posterior, as an index into BANDS."""
        hard_N = self.cdf(config.hard_below)
        easy_N = 1.0 - self.cdf(config.easy_above)
        mass_3N = np.stack([easy_N, 1.0 - easy_N - hard_N, hard_N])
        sure_N = mass_3N.max(axis=0) >= config.min_posterior_mass
        return np.where(sure_N, mass_3N.argmax(axis=0), BANDS.index("unknown"))

    def initial_bands(self, config: DifficultyConfig) -> Int[np.ndarray, " N"]:
        """Returns each problem's band by its pass rate before RL, an index of BANDS."""
        return assign_bands(self.initial_correct, self.initial_attempts, config)

    def telemetry_bands(self, config: DifficultyConfig) -> Int[np.ndarray, " N"]:
        """Returns the bands that telemetry, RFGO and alarms use.

        That is the initial band; the posterior band if it was not sampled before RL.
        """
        return np.where(
            self.initial_attempts > 0,
            self.initial_bands(config),
            self.posterior_bands(config),
        )

    def gather(self, problem_index: Sequence[int]) -> "Difficulty":
        """Returns the estimates of the problems at these indices.

        Index -1 is a problem outside the pool, which counts as never tried.
        """
        index = np.asarray(problem_index, int)
        in_pool = index >= 0
        blank = init_difficulty(len(index))
        arrays: dict[str, Any] = {
            name: np.where(
                in_pool, array[np.where(in_pool, index, 0)], vars(blank)[name]
            )
            for name, array in _array_fields(self)
        }
        return dataclasses.replace(blank, num_batches=self.num_batches, **arrays)

    def to_json(self) -> dict[str, Any]:
        """Returns the estimates as plain JSON, without problems never visited."""
        visited = np.flatnonzero(self.num_visits)
        columns = {name: array[visited] for name, array in _array_fields(self)}
        return {
            "size": self.size,
            "num_batches": self.num_batches,
            "problem": visited.tolist(),
            **{name: nan_to_none(column.tolist()) for name, column in columns.items()},
            "history": [
                [list(visit) for visit in self.history.get(i, ())]
                for i in visited.tolist()
            ],
        }


def assign_bands(
    num_correct: Int[np.ndarray, " N"],
    num_graded: Int[np.ndarray, " N"],
    config: DifficultyConfig,
) -> Int[np.ndarray, " N"]:
    """Returns the band of each share correct, as an index into BANDS.

    Without a graded completion the band is unknown.
    """
    return bands_of_pass_rates(_divide_or_nan(num_correct, num_graded), config)


def init_difficulty(size: int) -> Difficulty:
    """Returns the estimates of `size` problems that were never tried."""
    arrays: dict[str, Any] = {
        **{name: np.zeros(size, np.int64) for name in _COUNT_FIELDS},
        **{name: np.zeros(size) for name in _SUM_FIELDS},
        **{name: np.full(size, np.nan) for name in _LAST_FIELDS},
    }
    return Difficulty(num_batches=0, history={}, **arrays)


def from_json(data: Mapping[str, Any]) -> Difficulty:
    """Returns the estimates that `to_json` wrote."""
    state = init_difficulty(data["size"])
    visited = np.array(data["problem"], int)
    arrays: dict[str, Any] = {}
    for name, array in _array_fields(state):
        arrays[name] = array.copy()
        arrays[name][visited] = [np.nan if v is None else v for v in data[name]]
    history = {
        int(i): tuple((s, n, c) for s, n, c in visits)
        for i, visits in zip(visited, data["history"], strict=True)
    }
    return dataclasses.replace(
        state, num_batches=data["num_batches"], history=history, **arrays
    )


def record_outcomes(
    state: Difficulty,
    outcomes: Sequence[ProblemOutcome],
    *,
    step: int,
    num_batches: int,
    config: DifficultyConfig,
) -> Difficulty:
    """Returns the estimates after these visits, in order.

    `num_batches` counts the batches served meanwhile. A visit without a graded
    completion counts as a visit, but not as evidence.
    """
    arrays: dict[str, Any] = {
        name: array.copy() for name, array in _array_fields(state)
    }
    history = dict(state.history)
    for visit in outcomes:
        at, n, k = visit.problem_index, visit.num_graded, visit.num_correct
        arrays["num_visits"][at] += 1
        if n == 0:
            continue
        p, previous_p = k / n, arrays["last_pass_rate"][at]
        counts = (("discounted_correct", k), ("discounted_incorrect", n - k))
        for name, count in counts:
            arrays[name][at] = config.decay * arrays[name][at] + count
        increments: dict[str, float] = {
            "attempts": n,
            "correct": k,
            "sum_p": p,
            "sum_p2": p * p,
            "num_graded_visits": 1,
            "forgetting_events": int(previous_p >= SOLVED_PASS_RATE > p),
        }
        if step == INITIAL_STEP:
            increments |= {"initial_attempts": n, "initial_correct": k}
        for name, increment in increments.items():
            arrays[name][at] += increment
        old, new = arrays["vcrl_score"][at], group_variance_score(n, k)
        momentum = config.variance_momentum
        average = momentum * old + (1 - momentum) * new
        arrays["vcrl_score"][at] = new if np.isnan(old) else average
        arrays["last_pass_rate"][at] = p
        arrays["answer_entropy"][at] = visit.answer_entropy
        history[at] = (*history.get(at, ()), (step, n, k))[-_MAX_HISTORY:]
    return dataclasses.replace(
        state, num_batches=state.num_batches + num_batches, history=history, **arrays
    )


def group_variance_score(n: int, k: int) -> float:
    """Returns the variance of k successes in n, over the largest variance for n.

    VCRL (https://arxiv.org/abs/2509.19803): k (n - k) / (n (n - 1)) over n / (4 (n-1))
    for even n and over (n + 1) / (4 n) for odd n. One completion has no variance: 0.
    """
    if n < 2:
        return 0.0
    largest = n / (4 * (n - 1)) if n % 2 == 0 else (n + 1) / (4 * n)
    return k * (n - k) / (n * (n - 1)) / largest


def bands_of_pass_rates(pass_rate: np.ndarray, config: DifficultyConfig) -> np.ndarray:
    """Returns the band of each pass rate, unknown for NaN."""
    return np.select(
        [
            np.isnan(pass_rate),
            pass_rate < config.hard_below,
            pass_rate > config.easy_above,
        ],
        [BANDS.index("unknown"), BANDS.index("hard"), BANDS.index("easy")],
        BANDS.index("medium"),
    )


def _divide_or_nan(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1), np.nan)


def _array_fields(state: Difficulty) -> list[tuple[str, np.ndarray]]:
    return [(k, v) for k, v in vars(state).items() if isinstance(v, np.ndarray)]


def nan_to_none(values: list[Any]) -> list[Any]:
    """Returns the values with None for NaN, which JSON does not have."""
    return [None if math.isnan(value) else value for value in values]
