"""Intervals and tests over problems, runs and draws. NumPy and SciPy only.

Samples of one problem resemble each other, so within one run the unit of an interval
is the *problem*, never the single sample. A mean of bounded numbers, such as pass@k,
gets an interval that uses the bounds (`mean_interval`). All other means, including
means over seeds or over draws of random controls, get Student's t. A single unit has
no interval, and unbounded numbers that are all equal have none either: the ends are
NaN. References:
  bounded means  https://arxiv.org/abs/1905.06208  (the interval of `mean_interval`)
  McNemar        https://doi.org/10.1007/BF02295996  (its exact form, a binomial test)
  maxT           Westfall and Young, Resampling-Based Multiple Testing, Wiley 1993
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, ndtr, stdtr, stdtrit

from job_jax.resampling import Interval, resample_weights

CONFIDENCE = 0.95  # of every interval
# Numbers that should be equal may differ by this much through rounding.
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

    `values` are [N], one for each problem, or [N, K]: K means over the same N problems
    with the same resamples. `denominators` [N] are 1 by default. With them, the mean is
    a ratio of counts, such as P(correct | strategy), and `bounds` apply to
    value / denominator.

    The low end is the 2.5th percentile of the mean under random weights, drawn
    uniformly over the N problems and one extra problem at the lower bound. The high end
    is the 97.5th percentile with the extra problem at the upper bound. The extra
    problem represents cases that the sample happens not to contain. If all problems are
    right or all are wrong, this is Clopper and Pearson's interval, which it extends to
    fractions. The ends are NaN if fewer than two problems have a denominator. Where
    denominators differ, the extra problem has the largest. (This rule is ours.)
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

    Values are fractions, one for each problem. Each side is resampled separately, as in
    `mean_interval`. If both sides have the same problems, `mean_interval` of their
    differences, with bounds (-1, 1), is narrower.
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
    """Returns the mean of the groups' means, each group with the same weight.

    This is the average of several benchmarks. Values are fractions, one for each
    problem: [N], or [N, K] with the same K in all groups. Each group is resampled
    separately, as in `mean_interval`. If a group has a single problem, the ends are
    NaN.
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
    per_N: np.ndarray,
    bounds: tuple[float, float],
) -> None:
    """Raises ValueError if shapes or denominators are wrong or values leave bounds."""
    if per_N.shape != value_NK.shape[:1] or per_N.sum() <= 0 or per_N.min() < 0:
        raise ValueError(
            f"values {value_NK.shape} over denominators {per_N.shape}, summing to "
            f"{per_N.sum()}; give one of each per problem, with a positive sum"
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
    per_N: np.ndarray,
    bounds: tuple[float, float],
    *,
    resamples: int,
    seed: int | np.random.Generator,
) -> list[npt.NDArray[np.float64]]:
    """Returns two arrays [R, ...]: resampled means with an extra problem at each bound.

    The first has it at the lower bound, the second at the upper.
    """
    N, most = len(value_NK), per_N.max()
    if (per_N > 0).sum() < 2:
        return [np.full((1, *value_NK.shape[1:]), np.nan)] * 2
    weights_RN = resample_weights(N + 1, resamples=resamples, seed=seed)
    over_RK, under_R = weights_RN[:, :N] @ value_NK, weights_RN[:, :N] @ per_N
    unseen_R = weights_RN[:, N] * most
    # Transposed, R is the last axis, so `unseen_R` and `under_R` broadcast.
    means = [
        ((over_RK.T + bound * unseen_R) / (under_R + unseen_R)).T for bound in bounds
    ]
    return [np.clip(mean_RK, *bounds) for mean_RK in means]  # undoes rounding


def _percentiles(
    mean: npt.ArrayLike,
    low_RK: npt.NDArray[np.float64],
    high_RK: npt.NDArray[np.float64],
) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    # Among R draws, rank (R + 1) tail has mass `tail` below it on average. NumPy's
    # default rank, (R - 1) tail + 1, has more, which makes the interval too narrow.
    low_K = np.quantile(low_RK, tail, axis=0, method="weibull")
    high_K = np.quantile(high_RK, 1 - tail, axis=0, method="weibull")
    return Interval(mean, low_K, high_K)


def t_interval(values: npt.ArrayLike) -> Interval:
    """Returns the mean of unbounded numbers with its Student's t interval.

    Give one value per run or per problem. The ends are NaN if there is only one value
    or if all are equal.
    """
    value_N = np.asarray(values, np.float64)
    if value_N.ndim != 1 or not value_N.size:
        raise ValueError(f"t_interval: values {value_N.shape}; give one per run, [N]")
    N = len(value_N)
    variance = _variance(value_N) / N if N > 1 else 0.0
    return _student_interval(value_N.mean(), variance, N - 1)


def welch_interval(values: npt.ArrayLike, others: npt.ArrayLike) -> Interval:
    """Returns Welch's t interval of mean(values) - mean(others), unpaired.

    The sides may differ in variance and in the number of runs (or problems). The ends
    are NaN if a side has a single value or if neither side varies.
    """
    sides = [np.asarray(side, np.float64) for side in (values, others)]
    if any(side.ndim != 1 or not side.size for side in sides):
        raise ValueError(
            f"welch_interval: values {sides[0].shape}, others {sides[1].shape}; give "
            "one per run, [N]"
        )
    difference = sides[0].mean() - sides[1].mean()
    if min(map(len, sides)) < 2:
        return Interval(difference, np.nan, np.nan)
    parts = [_variance(side) / len(side) for side in sides]
    below = sum(p * p / (len(s) - 1) for p, s in zip(parts, sides, strict=True))
    freedom = sum(parts) ** 2 / below if below > 0 else 1.0
    return _student_interval(difference, sum(parts), freedom)


def is_constant(values: npt.ArrayLike) -> bool:
    """Returns whether numbers differ only by rounding."""
    value_N = np.asarray(values, np.float64)
    return bool(np.ptp(value_N) <= _ROUNDING * np.abs(value_N).max())


def _variance(value_N: npt.NDArray[np.float64]) -> float:
    """Returns the unbiased variance, 0 if values differ only by rounding."""
    return 0.0 if is_constant(value_N) else float(value_N.var(ddof=1))


def _student_interval(mean: float, variance: float, dof: float) -> Interval:
    """Returns mean -+ t standard errors; the ends are NaN if the variance is 0."""
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

    def resampled(self, counts_RN: np.ndarray) -> npt.NDArray[np.float64]:
        """Returns each resample's ratio, NaN where its denominators are all 0."""
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

    It is a percentile bootstrap over problems, with the same `resample_counts` for both
    arms. p comes from a normal distribution with the bootstrap's standard error, so it
    can be smaller than 1 / resamples, but never below 2^(1 - N), the sign test's p if
    all N problems agree. With a single problem, or a difference that does not vary over
    so few problems that this p exceeds 5 %, the ends are NaN. If an arm's denominators
    are all 0, every number is NaN and p = 1.
    """
    mean = ratio.mean() - other.mean()
    difference_R = ratio.resampled(counts_RN) - other.resampled(counts_RN)
    difference_R = difference_R[np.isfinite(difference_R)]
    if np.isnan(mean) or len(difference_R) == 0:
        return _UNKNOWN
    num_problems = int(((ratio.denominator > 0) & (other.denominator > 0)).sum())
    least_p = 2.0 ** (1 - max(1, num_problems))
    error = float(difference_R.std())
    if error <= _ROUNDING and least_p > 1 - CONFIDENCE:
        p = 1.0 if abs(mean) <= _ROUNDING else least_p
        return Difference(mean=mean, low=math.nan, high=math.nan, p=p)
    low, high = np.quantile(difference_R, [0.025, 0.975])
    p = 1.0
    if abs(mean) > _ROUNDING:
        p = max(least_p, float(2 * ndtr(-abs(mean) / max(error, _ROUNDING))))
    return Difference(mean=mean, low=float(low), high=float(high), p=p)


_UNKNOWN = Difference(mean=math.nan, low=math.nan, high=math.nan, p=1.0)


def draw_difference(value: float, draws: npt.ArrayLike) -> Difference:
    """Returns a value minus the mean of d draws, to test if it could be another draw.

    It is Student's t with variance s^2 (1 + 1/d), where s^2 is the variance between
    draws. The interval covers the difference of a further draw, and p tests whether the
    value is one. If a number is NaN or there are fewer than two draws, all are NaN and
    p = 1. If all draws are equal, the ends are NaN.

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
    p = float(2 * stdtr(len(draw_R) - 1, -t)) if abs(mean) > 1e-12 else 1.0
    return Difference(mean=mean, low=low, high=high, p=p)


def max_rank_p_values(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns p-values [M], which test in each statistic if row 0 is too far out.

    `values` [A, M] has A rows, which are exchangeable under the null hypothesis that
    row 0 is nothing special. A row's distance is its largest |value - mean| / std over
    the statistics, with mean and std over all rows. A statistic's p is the share of
    rows with a distance of at least row 0's |value - mean| / std in that statistic.
    Under the null hypothesis, the chance that any of the M p-values is at most alpha is
    at most alpha. This holds for any distribution and any dependence between statistics
    (Westfall and Young, 1993, single-step maxT). A statistic with a NaN has p = 1.

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

    p is from the exact binomial test that disagreeing pairs go either way equally
    often. The test assumes independent pairs, but samples of one problem are not quite
    independent. `ratio_difference` resamples whole problems instead.
    """
    gained, lost = int((correct & ~reference).sum()), int((~correct & reference).sum())
    changed = gained + lost
    fewer = float(bdtr(min(gained, lost), changed, 0.5))  # P(at most so many)
    return {"gained": gained, "lost": lost, "p": min(1.0, 2 * fewer)}
