"""Intervals and tests over problems, runs and draws. NumPy and SciPy only.

Samples of one problem resemble each other, so an interval within one run resamples
*problems* (percentile bootstrap), never single samples. Over runs of other seeds, and
over draws of random controls, it is Student's t. References:
  McNemar  https://doi.org/10.1007/BF02295996  (here its exact form, a binomial test)
  maxT     Westfall and Young, Resampling-Based Multiple Testing, Wiley 1993
"""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import stdtrit

from job_jax.resampling import resample_counts

Interval = dict[str, float]  # "mean", "low", "high"


def bootstrap_interval(
    values: npt.ArrayLike,
    *,
    denominators: npt.ArrayLike | None = None,
    resamples: int,
    seed: int,
    confidence: float = 0.95,
) -> Interval:
    """Returns {"mean", "low", "high"} of sum(values) / sum(denominators).

    One value a problem; without `denominators` this is the mean over problems. With
    them it is a ratio of counts, such as P(correct | strategy): problems are resampled
    whole, and resamples whose denominators are all 0 are left out. `low` and `high`
    are the percentiles that hold the fraction `confidence` of the resampled ratios.
    """
    value_N = np.asarray(values, np.float64)
    per_N = np.asarray(
        np.ones_like(value_N) if denominators is None else denominators, np.float64
    )
    if value_N.ndim != 1 or value_N.shape != per_N.shape or per_N.sum() == 0:
        raise ValueError(
            f"bootstrap_interval: values {value_N.shape} over denominators "
            f"{per_N.shape}, summing to {per_N.sum()}; give one of each per problem, "
            "not all 0"
        )
    counts_RN = resample_counts(len(value_N), resamples=resamples, seed=seed)
    over_R, under_R = counts_RN @ value_N, counts_RN @ per_N
    ratio = over_R[under_R > 0] / under_R[under_R > 0]
    return _percentile_interval(value_N.sum() / per_N.sum(), ratio, confidence)


def bootstrap_difference(
    values: npt.ArrayLike,
    others: npt.ArrayLike,
    *,
    resamples: int,
    seed: int,
    confidence: float = 0.95,
) -> Interval:
    """Returns the interval of mean(values) - mean(others), over different problems.

    Each side is resampled by itself. For the same problems on both sides,
    `bootstrap_interval` of their differences is narrower.
    """
    sides = [np.asarray(side, np.float64) for side in (values, others)]
    if any(side.ndim != 1 or not side.size for side in sides):
        raise ValueError(
            f"bootstrap_difference: values {sides[0].shape}, others {sides[1].shape}; "
            "give one value a problem, and at least one problem a side"
        )
    rng = np.random.default_rng(seed)
    means = [
        resample_counts(len(side), resamples=resamples, seed=rng) @ side / len(side)
        for side in sides
    ]
    return _percentile_interval(
        sides[0].mean() - sides[1].mean(), means[0] - means[1], confidence
    )


def t_interval(values: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Returns the mean of two runs or more with its Student's t interval."""
    value_R = np.asarray(values, np.float64)
    if value_R.ndim != 1 or len(value_R) < 2:
        raise ValueError(f"t_interval: {value_R.shape}; an interval needs two runs")
    error = math.sqrt(value_R.var(ddof=1) / len(value_R))
    return _student_interval(value_R.mean(), error, len(value_R) - 1, confidence)


def welch_interval(
    values: npt.ArrayLike, others: npt.ArrayLike, *, confidence: float = 0.95
) -> Interval:
    """Returns Welch's t interval of mean(values) - mean(others), over runs.

    Two or more runs a side; neither variances nor numbers of runs need be equal.
    """
    sides = [np.asarray(side, np.float64) for side in (values, others)]
    if any(side.ndim != 1 or len(side) < 2 for side in sides):
        raise ValueError(
            f"welch_interval: values {sides[0].shape}, others {sides[1].shape}; an "
            "interval needs two runs a side"
        )
    parts = [side.var(ddof=1) / len(side) for side in sides]
    below = sum(p * p / (len(s) - 1) for p, s in zip(parts, sides, strict=True))
    freedom = sum(parts) ** 2 / below if below > 0 else 1.0
    difference = sides[0].mean() - sides[1].mean()
    return _student_interval(difference, math.sqrt(sum(parts)), freedom, confidence)


def _percentile_interval(
    mean: float, resampled: npt.NDArray[np.float64], confidence: float
) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return {"mean": float(mean), "low": float(low), "high": float(high)}


def _student_interval(
    mean: float, standard_error: float, dof: float, confidence: float
) -> Interval:
    half = float(stdtrit(dof, (1 + confidence) / 2)) * standard_error
    return {"mean": float(mean), "low": float(mean - half), "high": float(mean + half)}


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
    value is NaN or there are fewer than two draws.

    >>> difference = draw_difference(4.0, [0.0, 1.0, 2.0])  # 3 / sqrt(4/3), 2 dof
    >>> round(difference.mean, 3), round(difference.p, 3)
    (3.0, 0.122)
    """
    draw_R = np.asarray(draws, np.float64)
    mean = float(value - draw_R.mean()) if draw_R.size else math.nan
    if len(draw_R) < 2 or np.isnan(mean):
        return _UNKNOWN
    error = math.sqrt(draw_R.var(ddof=1) * (1 + 1 / len(draw_R)))
    interval = _student_interval(mean, error, len(draw_R) - 1, 0.95)
    t = abs(mean) / max(error, 1e-12)
    p = float(2 * stats.t.sf(t, len(draw_R) - 1)) if abs(mean) > 1e-12 else 1.0
    return Difference(p=p, **interval)


def max_rank_p_values(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns for each of M statistics how rarely a row is as far out as row 0, [M].

    `values` [A, M] has A rows that are exchangeable where nothing sets row 0 apart. A
    row's distance is the largest, over the statistics, of |value - mean| / std of all
    rows; p is the share of rows whose distance reaches that of row 0 in the statistic.
    Whatever the distribution, and however statistics depend on one another, one of the
    M p-values is at most alpha in at most a share alpha of cases (Westfall and Young,
    1993, single-step maxT). A statistic with a NaN has p = 1.

    >>> max_rank_p_values([[5.0, 0.0], [1.0, 2.0], [2.0, 1.0], [0.0, 1.0]]).tolist()
    [0.25, 1.0]
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
