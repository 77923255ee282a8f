"""Intervals and tests over problems and over runs. NumPy and SciPy only.

Samples of one problem resemble each other, so an interval within one run resamples
*problems* (percentile bootstrap), never single samples. Over runs of other seeds it is
Student's t of the runs' means. Reference:
  McNemar  https://doi.org/10.1007/BF02295996  (here its exact form, a binomial test)
"""

import dataclasses
import math
from collections.abc import Sequence
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
        return float(self.resampled(np.ones((1, len(self.numerator))))[0])

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
    ratio: RatioStatistic,
    others: Sequence[RatioStatistic],
    counts_RN: npt.NDArray[np.int64],
) -> Difference:
    """Returns a ratio minus the mean of the same ratio in other arms.

    Percentile bootstrap over problems, with the same `resample_counts` for all arms. p
    is that of a normal with the bootstrap's standard error, so it can be smaller than
    1 / resamples. All NaN where an arm has no case of the ratio.
    """

    def difference(counts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return ratio.resampled(counts) - np.mean(
            [other.resampled(counts) for other in others], axis=0
        )

    mean = float(difference(np.ones((1, len(ratio.numerator))))[0])
    difference_R = difference(counts_RN)
    difference_R = difference_R[np.isfinite(difference_R)]
    if np.isnan(mean) or len(difference_R) == 0:
        return Difference(mean=np.nan, low=np.nan, high=np.nan, p=1.0)
    low, high = np.quantile(difference_R, [0.025, 0.975])
    # Rounding leaves this much of a difference that is the same in every resample.
    error = max(float(difference_R.std()), 1e-12)
    p = float(2 * stats.norm.sf(abs(mean) / error)) if abs(mean) > 1e-12 else 1.0
    return Difference(mean=mean, low=float(low), high=float(high), p=p)


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
