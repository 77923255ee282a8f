"""p-values of differences over seeds, and Holm's correction for several of them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from rlvr_jax.metrics.bootstrap import is_constant


def paired_p_value(differences: Sequence[float]) -> float:
    """Returns the two-sided p-value of Student's t-test that the mean is 0.

    It is NaN for fewer than two values, and if they differ only by rounding.
    """
    values = np.asarray(differences, np.float64)
    if len(values) < 2 or is_constant(values):
        return float("nan")
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Returns the p-values corrected for their number by Holm's method (1979).

    If every hypothesis is a null, the chance that any corrected value is at most 0.05
    is at most 0.05, whatever their dependence. The i-th smallest of n, from 0, is
    multiplied by n - i; no value is below that of a smaller p. NaN stays NaN and does
    not count.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p_N = np.asarray(p_values, np.float64)
    order_N = np.argsort(p_N, stable=True)  # NaN last
    num_known = int((~np.isnan(p_N)).sum())
    factor_N = np.maximum(num_known - np.arange(len(p_N)), 1)
    corrected_N = np.full(len(p_N), np.nan)
    corrected_N[order_N] = np.maximum.accumulate(p_N[order_N] * factor_N)
    return np.minimum(corrected_N, 1.0)
