"""Rank correlations, and their mean over seeds.

Numbers that differ by rounding alone are ties: the mean of the same three pass rates in
another order may differ in its last bit, and must not get another rank.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from scipy import stats

from job_jax.resampling import Interval
from rlvr_jax.metrics.bootstrap import t_interval

DIGITS = 12


def rank_correlations(
    x: Float[npt.ArrayLike, "*R N"], y: Float[npt.ArrayLike, "*R N"]
) -> Float[np.ndarray, "*R"]:
    """Returns Spearman's correlation of each row, NaN where a side does not vary.

    Numbers that agree to 12 decimal places are equal, and share the mean of their
    ranks.

    >>> rank_correlations([1, 2, 3, 4], [0, 0, 5, 7]).round(3).item()
    0.949
    """
    pairs_2RN = np.round(np.array([x, y], np.float64), DIGITS)
    ranks_2RN = stats.rankdata(pairs_2RN, axis=-1)
    off_2RN = ranks_2RN - ranks_2RN.mean(axis=-1, keepdims=True)
    squares_R = np.prod((off_2RN**2).sum(axis=-1), axis=0)
    products_R = np.prod(off_2RN, axis=0).sum(axis=-1)
    varies_R = squares_R > 0
    return np.where(
        varies_R, products_R / np.sqrt(np.where(varies_R, squares_R, 1.0)), np.nan
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """A number in -1..1 for each seed that has it, and the mean with its interval."""

    by_seed: Mapping[int, float]
    interval: Interval

    @classmethod
    def average(cls, by_seed: Mapping[int, float]) -> "OverSeeds":
        """Returns the mean over seeds with Student's interval, cut at -1 and 1.

        The ends are NaN for a single seed and for seeds that are all equal.
        """
        value, low, high = t_interval([*by_seed.values()])
        ends = np.clip([low, high], -1, 1)
        return cls(by_seed=by_seed, interval=Interval(value, *map(float, ends)))
