"""Intervals of a statistic, and the resamples they are computed from. NumPy only.

A unit, such as a problem or a prompt, is drawn as a whole: its samples or tokens
resemble each other, so they are never drawn separately. References:
  the bootstrap           https://doi.org/10.1214/aos/1176344552
  the Bayesian bootstrap  https://doi.org/10.1214/aos/1176345338
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt


class Interval(NamedTuple):
    """A statistic with the lower and upper end of its interval, numbers or arrays.

    Ends are NaN if the data determine none, as with a single unit.
    """

    value: Any
    low: Any
    high: Any

    def to_json(self) -> dict[str, float | None]:
        """Returns {"mean", "low", "high"} of a single number, unknown ends null.

        >>> Interval(0.5, 0.25, np.nan).to_json()
        {'mean': 0.5, 'low': 0.25, 'high': None}
        """
        low, high = (None if np.isnan(end) else float(end) for end in self[1:])
        return {"mean": float(self.value), "low": low, "high": high}

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Self:
        """Returns the interval that `to_json` wrote."""
        ends = (fields[name] for name in ("low", "high"))
        return cls(fields["mean"], *(np.nan if end is None else end for end in ends))


def resample_counts(
    size: int, *, resamples: int, seed: int | np.random.Generator
) -> npt.NDArray[np.int64]:
    """Returns how often each resample contains each of `size` units, [R, N].

    Sums over a resample are `counts @ values`. Using one set of counts for every
    statistic pairs them.

    >>> resample_counts(3, resamples=2, seed=0).sum(axis=1).tolist()
    [3, 3]
    """
    even_N = np.full(size, 1 / size)
    return np.random.default_rng(seed).multinomial(size, even_N, size=resamples)


def resample_weights(
    size: int, *, resamples: int, seed: int | np.random.Generator
) -> npt.NDArray[np.float64]:
    """Returns a weight for each of `size` units in each resample, [R, N].

    These are the weights of the Bayesian bootstrap: uniform over all weights that sum
    to 1. Unlike with `resample_counts`, no unit is ever left out.

    >>> resample_weights(3, resamples=2, seed=0).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    weights_RN = np.random.default_rng(seed).standard_exponential((resamples, size))
    return weights_RN / weights_RN.sum(axis=1, keepdims=True)
