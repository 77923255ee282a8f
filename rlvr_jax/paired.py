"""Two ways of answering the same questions, compared. NumPy and SciPy only.

Problems and sampling keys are the same in both, so what differs is the difference
between them. Reference:
  McNemar  https://doi.org/10.1007/BF02295996  (here its exact form, a binomial test)
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A figure over N problems: sum(value) / sum(per), such as a mean over samples."""

    value: npt.NDArray[np.float64]
    per: npt.NDArray[np.float64]

    def mean(self) -> float:
        """Returns the figure, NaN where there is no case of it."""
        return float(self._of(np.ones((1, len(self.value))))[0])

    def _of(self, draws_RN: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Returns the figure of each resample, NaN where it holds no case."""
        per_R = draws_RN @ self.per
        some_R = per_R > 0
        ratio_R = draws_RN @ self.value / np.where(some_R, per_R, 1.0)
        return np.where(some_R, ratio_R, np.nan)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference with its 95 % interval; p is two-sided, against no difference."""

    mean: float
    low: float
    high: float
    p: float


def bootstrap_draws(size: int, *, resamples: int, seed: int) -> npt.NDArray[np.int64]:
    """Returns how often each resample holds each problem, [R, N]."""
    even_N = np.full(size, 1 / size)
    return np.random.default_rng(seed).multinomial(size, even_N, size=resamples)


def difference(
    one: Ratio, others: Sequence[Ratio], draws_RN: npt.NDArray[np.int64]
) -> Difference:
    """Returns a figure less the mean of the same figure in other arms.

    Percentile bootstrap over problems: `bootstrap_draws` holds for all arms. p is that
    of a normal with the bootstrap's standard error, so that it can be smaller than one
    in the number of resamples. All NaN where an arm holds no case of the figure.
    """

    def of(draws: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return one._of(draws) - np.mean([each._of(draws) for each in others], axis=0)

    mean = float(of(np.ones((1, len(one.value))))[0])
    drawn_R = of(draws_RN)
    drawn_R = drawn_R[np.isfinite(drawn_R)]
    if np.isnan(mean) or len(drawn_R) == 0:
        return Difference(mean=np.nan, low=np.nan, high=np.nan, p=1.0)
    low, high = np.quantile(drawn_R, [0.025, 0.975])
    # Rounding leaves this much of a difference that is the same in every resample.
    error = max(float(drawn_R.std()), 1e-12)
    p = float(2 * stats.norm.sf(abs(mean) / error)) if abs(mean) > 1e-12 else 1.0
    return Difference(mean=mean, low=float(low), high=float(high), p=p)


def mcnemar(
    one: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_]
) -> dict[str, float]:
    """Returns how paired successes differ: `gained`, `lost` and the exact p.

    Of the pairs that disagree, a half would go either way by chance. Pairs are taken
    for independent, which samples of one problem are not quite: `difference` draws
    whole problems.
    """
    gained, lost = int((one & ~other).sum()), int((~one & other).sum())
    changed = gained + lost
    p = stats.binomtest(gained, changed).pvalue if changed else 1.0
    return {"gained": gained, "lost": lost, "p": float(p)}
