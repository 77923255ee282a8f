"""Intervals over seeds and problems at once, where every seed has every problem."""

import math

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from job_jax.resampling import Interval
from rlvr_jax.metrics.bootstrap import CONFIDENCE

_ROUNDING = 1e-12  # of the largest value


def crossed_interval(values: npt.ArrayLike) -> Interval:
    """Returns the mean of `values` [S, P] with its interval for other S and other P.

    S seeds and P problems are crossed random effects: value = mean + seed + problem +
    rest. The variance of the mean is V_S + V_P - V_R, at least the larger of V_S and
    V_P. V_S is the variance of a mean over seeds' means, V_P of a mean over problems'
    means; V_R is the rest, which both contain and which must count once. The degrees of
    freedom are Satterthwaite's (https://doi.org/10.2307/3002019). The ends are NaN if
    values differ by no more than rounding. Raises ValueError for fewer than two seeds
    or problems.

    >>> interval = crossed_interval([[0.0, 1.0, 0.0], [0.5, 1.0, 0.5]])
    >>> round(interval.value, 3), round(interval.low, 3), round(interval.high, 3)
    (0.5, -0.524, 1.524)
    """
    value_SP = np.asarray(values, np.float64)
    if value_SP.ndim != 2 or min(value_SP.shape) < 2:
        raise ValueError(
            f"crossed_interval: values {value_SP.shape}; give [S, P] with at least two "
            "seeds and two problems"
        )
    S, P = value_SP.shape
    mean = float(value_SP.mean())
    seed_S, problem_P = value_SP.mean(axis=1), value_SP.mean(axis=0)
    rest_SP = value_SP - seed_S[:, None] - problem_P + mean
    of_seeds = float(seed_S.var(ddof=1)) / S
    of_problems = float(problem_P.var(ddof=1)) / P
    of_rest = float((rest_SP**2).sum()) / ((S - 1) * (P - 1) * S * P)
    variance = max(of_seeds + of_problems - of_rest, of_seeds, of_problems)
    if variance <= (_ROUNDING * np.abs(value_SP).max()) ** 2:
        return Interval(mean, math.nan, math.nan)
    below = (
        of_seeds**2 / (S - 1)
        + of_problems**2 / (P - 1)
        + of_rest**2 / ((S - 1) * (P - 1))
    )
    freedom = max(variance**2 / below, min(S, P) - 1)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)
