"""The resamples of a bootstrap, as counts. NumPy only."""

import numpy as np
import numpy.typing as npt


def resample_counts(
    size: int, *, resamples: int, seed: int | np.random.Generator
) -> npt.NDArray[np.int64]:
    """Returns how often each resample contains each of `size` units, [R, N].

    A unit is what is drawn whole: a problem, a prompt. Sums over a resample are
    `counts @ values`: one set of counts serves every statistic, which pairs them.

    >>> resample_counts(3, resamples=2, seed=0).sum(axis=1).tolist()
    [3, 3]
    """
    even_N = np.full(size, 1 / size)
    return np.random.default_rng(seed).multinomial(size, even_N, size=resamples)
