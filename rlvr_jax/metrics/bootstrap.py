"""Intervals and tests over problems, runs and draws. NumPy and SciPy only.

Samples of one problem resemble each other, so the unit of an interval within one run
is the *problem*, never the single sample. A mean of numbers with bounds, such as
pass@k, has its bounds to go by (`mean_interval`); other means, and those of runs of
other seeds or of draws of random controls, have Student's t. No interval is told of one
unit, nor of numbers without bounds that do not differ: its ends are NaN. References:
  bounded means  https://arxiv.org/abs/1905.06208  (the interval of `mean_interval`)
  McNemar        https://doi.org/10.1007/BF02295996  (its exact form, a binomial test)
  maxT           Westfall and Young, Resampling-Based Multiple Testing, Wiley 1993
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import stdtrit

from job_jax.resampling import Interval, resample_weights

CONFIDENCE = 0.95  # of every interval
# Rounding makes this much of a difference between numbers that are equal.
_ROUNDING = 1e-12


def mean_interval(
    values: npt.ArrayLike,
    *,
    denominators: npt.ArrayLike | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    resamples: int,
    seed: int | np.random.Generator,
) -> Interval:
    """Returns sum(values) / sum(denominators) over problems, with its interval.

    `values` are [N], one a problem, or [N, K]: K means over the same N problems, drawn
    alike. `denominators` [N] are 1 by default; with them the mean is a ratio of counts,
    such as P(correct | strategy), and value / denominator is what `bounds` hold.

    The low end is the 2.5th percentile of the mean under weights drawn evenly over the
    N problems and one more at the lower bound, the high end the 97.5th with that one at
    the upper bound: what was never seen may exist all the same. Problems that are all
    right or all wrong give Clopper and Pearson's interval, of which this is the
    extension to fractions. Of fewer than two problems with a denominator the ends are
    NaN. Where denominators differ, the one more has the largest (ours).
    """
    value_NK = np.asarray(values, np.float64)
    per_N = np.ones(len(value_NK)) if denominators is None else np.asarray(denominators)
    _check_problems(value_NK, per_N, bounds)
    mean_K = value_NK.sum(axis=0) / per_N.sum()
    ends = _resample_bounded(value_NK, per_N, bounds, resamples=resamples, seed=seed)
    return _percentiles(mean_K, *ends)


def mean_difference(
    values: npt.ArrayLike,
    others: npt.ArrayLike,
    *,
    resamples: int,
    seed: int,
) -> Interval:
    """Returns the interval of mean(values) - mean(others), over different problems.

    Fractions, one a problem, each side drawn by itself, as in `mean_interval`. For the
    same problems on both sides, `mean_interval` of their differences, with bounds
    (-1, 1), is narrower.
    """
    rng, bounds = np.random.default_rng(seed), (0.0, 1.0)
    sides = [np.asarray(side, np.float64) for side in (values, others)]
    for side in sides:
        _check_problems(side, np.ones(len(side)), bounds)
    (low_R, high_R), (other_low_R, other_high_R) = (
        _resample_bounded(
            side, np.ones(len(side)), bounds, resamples=resamples, seed=rng
        )
        for side in sides
    )
    return _percentiles(
        sides[0].mean() - sides[1].mean(), low_R - other_high_R, high_R - other_low_R
    )


def average_interval(
    groups: Sequence[npt.ArrayLike], *, resamples: int, seed: int
) -> Interval:
    """Returns the mean of the groups' means, each group of the same weight.

    Fractions, one a problem, [N] or [N, K] with a K that all groups have: the average
    of several benchmarks. Problems are drawn within their group, as `mean_interval`
    draws them, each group by itself. A group of a single problem leaves the ends NaN.
    """
    if not groups:
        raise ValueError("average_interval: no groups; give at least one")
    rng, bounds = np.random.default_rng(seed), (0.0, 1.0)
    values = [np.asarray(group, np.float64) for group in groups]
    ends = []
    for value_NK in values:
        ones_N = np.ones(len(value_NK))
        _check_problems(value_NK, ones_N, bounds)
        ends.append(
            _resample_bounded(value_NK, ones_N, bounds, resamples=resamples, seed=rng)
        )
    low_RK, high_RK = (sum(side) / len(groups) for side in zip(*ends, strict=True))
    mean_K = sum(value_NK.mean(axis=0) for value_NK in values) / len(groups)
    return _percentiles(mean_K, low_RK, high_RK)


def _check_problems(
    value_NK: npt.NDArray[np.float64],
    per_N: npt.NDArray[Any],
    bounds: tuple[float, float],
) -> None:
    """Refuses values that are no means over problems, or beyond their bounds."""
    if per_N.shape != value_NK.shape[:1] or per_N.sum() <= 0 or per_N.min() < 0:
        raise ValueError(
            f"values {value_NK.shape} over denominators {per_N.shape}, summing to "
            f"{per_N.sum()}; give one of each per problem, not all 0"
        )
    per_NK = per_N.reshape(-1, *(1,) * (value_NK.ndim - 1))
    low, high = bounds
    slack = _ROUNDING * max(abs(low), abs(high))
    if (
        (value_NK < (low - slack) * per_NK) | (value_NK > (high + slack) * per_NK)
    ).any():
        raise ValueError(
            f"values from {value_NK.min()} to {value_NK.max()} leave the bounds "
            f"{low}..{high}; give bounds that hold each value / denominator"
        )


def _resample_bounded(
    value_NK: npt.NDArray[np.float64],
    per_N: npt.NDArray[Any],
    bounds: tuple[float, float],
    *,
    resamples: int,
    seed: int | np.random.Generator,
) -> list[npt.NDArray[np.float64]]:
    """Returns resampled means with one more problem at either bound, each [R, ...]."""
    N, most = len(value_NK), per_N.max()
    if (per_N > 0).sum() < 2:
        return [np.full((1, *value_NK.shape[1:]), np.nan)] * 2
    weights_RN = resample_weights(N + 1, resamples=resamples, seed=seed)
    over_RK, under_R = weights_RN[:, :N] @ value_NK, weights_RN[:, :N] @ per_N
    unseen_R = weights_RN[:, N] * most
    # The resample's axis goes last, where the problems' vectors broadcast against it.
    means = [
        ((over_RK.T + bound * unseen_R) / (under_R + unseen_R)).T for bound in bounds
    ]
    return [np.clip(mean_RK, *bounds) for mean_RK in means]  # rounding may leave them


def _percentiles(
    mean: Any, low_RK: npt.NDArray[np.float64], high_RK: npt.NDArray[np.float64]
) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    # Of R draws the rank (R + 1) tail has the mass `tail` below it on average; the
    # default's rank, (R - 1) tail + 1, has more, and an interval too narrow.
    low_K = np.quantile(low_RK, tail, axis=0, method="weibull")
    high_K = np.quantile(high_RK, 1 - tail, axis=0, method="weibull")
    return Interval(mean, low_K, high_K)


def t_interval(values: npt.ArrayLike) -> Interval:
    """Returns the mean of numbers without bounds with its Student's t interval.

    One value a run, or a problem. NaN ends where there is one, or where all are equal.
    """
    value_N = np.asarray(values, np.float64)
    if value_N.ndim != 1 or not value_N.size:
        raise ValueError(f"t_interval: values {value_N.shape}; give one a run, [N]")
    N = len(value_N)
    variance = _variance(value_N) / N if N > 1 else 0.0
    return _student_interval(value_N.mean(), variance, N - 1)


def welch_interval(values: npt.ArrayLike, others: npt.ArrayLike) -> Interval:
    """Returns Welch's t interval of mean(values) - mean(others), unpaired.

    Neither variances nor numbers of runs (problems) need be equal. NaN ends where a
    side has one alone, or where neither side varies.
    """
    sides = [np.asarray(side, np.float64) for side in (values, others)]
    if any(side.ndim != 1 or not side.size for side in sides):
        raise ValueError(
            f"welch_interval: values {sides[0].shape}, others {sides[1].shape}; give "
            "one a run, [N]"
        )
    difference = sides[0].mean() - sides[1].mean()
    if min(map(len, sides)) < 2:
        return Interval(difference, np.nan, np.nan)
    parts = [_variance(side) / len(side) for side in sides]
    below = sum(p * p / (len(s) - 1) for p, s in zip(parts, sides, strict=True))
    freedom = sum(parts) ** 2 / below if below > 0 else 1.0
    return _student_interval(difference, sum(parts), freedom)


def _variance(value_N: npt.NDArray[np.float64]) -> float:
    """Returns the unbiased variance, 0 where values differ by rounding alone."""
    is_constant = np.ptp(value_N) <= _ROUNDING * np.abs(value_N).max()
    return 0.0 if is_constant else float(value_N.var(ddof=1))


def _student_interval(mean: float, variance: float, dof: float) -> Interval:
    """Returns mean -+ t standard errors; without variance the ends are NaN."""
    if variance == 0:
        return Interval(mean, np.nan, np.nan)
    half = float(stdtrit(dof, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatioStatistic:
    """A ratio over N problems: sum(numerator) / sum(denominator)."""

    numerator: npt.NDArray[np.float64]
    denominator: npt.NDArray[np.float64]

    def mean(self) -> float:
        """Returns the ratio, NaN where the denominators are all 0."""
        under = self.denominator.sum()
        return float(self.numerator.sum() / under) if under > 0 else math.nan

    def resampled(self, counts_RN: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Returns the ratio of each resample, NaN where its denominators are all 0."""
        under_R = counts_RN @ self.denominator
        has_cases_R = under_R > 0
        ratio_R = counts_RN @ self.numerator / np.where(has_cases_R, under_R, 1.0)
        return np.where(has_cases_R, ratio_R, np.nan)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference with its 95 % interval and its two-sided p against no difference."""

    mean: float
    low: float
    high: float
    p: float


def ratio_difference(
    ratio: RatioStatistic, other: RatioStatistic, counts_RN: npt.NDArray[np.int64]
) -> Difference:
    """Returns a ratio minus the same ratio in another arm.

    Percentile bootstrap over problems, with the same `resample_counts` for both arms. p
    is that of a normal with the bootstrap's standard error, so it can be smaller than
    1 / resamples. All NaN where an arm has no case of the ratio.
    """
    mean = ratio.mean() - other.mean()
    difference_R = ratio.resampled(counts_RN) - other.resampled(counts_RN)
    difference_R = difference_R[np.isfinite(difference_R)]
    if np.isnan(mean) or len(difference_R) == 0:
        return _UNKNOWN
    low, high = np.quantile(difference_R, [0.025, 0.975])
    # Rounding leaves this much of a difference that is the same in every resample.
    error = max(float(difference_R.std()), 1e-12)
    p = float(2 * stats.norm.sf(abs(mean) / error)) if abs(mean) > 1e-12 else 1.0
    return Difference(mean=mean, low=float(low), high=float(high), p=p)


_UNKNOWN = Difference(mean=math.nan, low=math.nan, high=math.nan, p=1.0)


def draw_difference(value: float, draws: npt.ArrayLike) -> Difference:
    """Returns a value minus the mean of d draws that it may be one more of.

    Student's t between draws, of variance s^2 (1 + 1/d): the interval covers a further
    draw's difference, and p asks whether the value is one. All NaN with p = 1 where a
    value is NaN or there are fewer than two draws; NaN ends where all draws are equal.

    >>> difference = draw_difference(4.0, [0.0, 1.0, 2.0])  # 3 / sqrt(4/3), 2 dof
    >>> round(difference.mean, 3), round(difference.p, 3)
    (3.0, 0.122)
    """
    draw_R = np.asarray(draws, np.float64)
    mean = float(value - draw_R.mean()) if draw_R.size else math.nan
    if len(draw_R) < 2 or np.isnan(mean):
        return _UNKNOWN
    variance = _variance(draw_R) * (1 + 1 / len(draw_R))
    _, low, high = _student_interval(mean, variance, len(draw_R) - 1)
    t = abs(mean) / max(math.sqrt(variance), 1e-12)
    p = float(2 * stats.t.sf(t, len(draw_R) - 1)) if abs(mean) > 1e-12 else 1.0
    return Difference(mean=mean, low=low, high=high, p=p)


def max_rank_p_values(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns for each of M statistics how rarely a row is as far out as row 0, [M].

    `values` [A, M] has A rows that are exchangeable where nothing sets row 0 apart. A
    row's distance is the largest, over the statistics, of |value - mean| / std of all
    rows; p is the share of rows whose distance reaches that of row 0 in the statistic.
    Whatever the distribution, and however statistics depend on one another, one of the
    M p-values is at most alpha in at most a share alpha of cases (Westfall and Young,
    1993, single-step maxT). A statistic with a NaN has p = 1.

    >>> max_rank_p_values([[5.0, 0.0], [1.0, 2.0], [2.0, 1.0], [0.0, 1.0]]).tolist()
    [0.25, 0.5]
    """
    value_AM = np.asarray(values, np.float64)
    known_M = np.isfinite(value_AM).all(axis=0)
    off_AM = np.where(known_M, value_AM, 0.0)
    off_AM = np.abs(off_AM - off_AM.mean(axis=0))
    std_M = np.sqrt((off_AM**2).mean(axis=0))
    distance_AM = np.where(std_M > 1e-12, off_AM / np.maximum(std_M, 1e-12), 0.0)
    reaches_AM = distance_AM.max(axis=1)[:, None] >= distance_AM[0] - 1e-9
    return reaches_AM.mean(axis=0)


def mcnemar(
    correct: npt.NDArray[np.bool_], reference: npt.NDArray[np.bool_]
) -> dict[str, float]:
    """Returns how paired successes differ from a reference: `gained`, `lost`, p.

    p is the exact binomial test that pairs which disagree go either way equally often.
    It takes pairs for independent, which samples of one problem are not quite:
    `ratio_difference` resamples whole problems.
    """
    gained, lost = int((correct & ~reference).sum()), int((~correct & reference).sum())
    changed = gained + lost
    p = stats.binomtest(gained, changed).pvalue if changed else 1.0
    return {"gained": gained, "lost": lost, "p": float(p)}
