"""P-values of paired differences, and false-discovery-rate control.

The same texts are read at two checkpoints. If values changed only by chance, a text's
two values could as well be swapped, so its difference d_p could as well be -d_p. The
sign-flip test computes how often random signs e_p = +-1 make |sum e_p d_p| at least as
large as observed. Drawing signs does not work for many features: the smallest p-value
of 1000 draws is 0.001, above the level that Benjamini-Hochberg needs for a few changes
among thousands. So the tail is computed by the saddlepoint method, which has no floor:

    K(s) = sum log cosh(s d_p),  K'(s) = sum |d_p|,  r = sqrt(2 (s K'(s) - K(s)))
    P(sum e_p d_p >= t) = 1 - Phi(r) + phi(r) (1/u - 1/r),  u = s sqrt(K''(s))

References:
  saddlepoint, tails  https://doi.org/10.2307/1426607  (Lugannani and Rice, 1980)
  permutation tests   https://doi.org/10.1111/j.2517-6161.1982.tb01191.x  (Robinson)
  discoveries         https://doi.org/10.1111/j.2517-6161.1995.tb02031.x  (BH)
"""

import numpy as np
from jaxtyping import Float
from scipy import stats
from scipy.special import ndtr

_BLOCK_SIZE = 1024  # features at a time, which bounds memory
_NEWTON_STEPS = 60
_NEAR_CENTER = 1e-2  # for smaller r, the one-sided tail counts as a half


def sign_flip_p_values(
    differences: Float[np.ndarray, "P Z"], *, integer: bool = False
) -> Float[np.ndarray, " Z"]:
    """Returns the two-sided sign-flip p-value of each column's sum of differences.

    `integer` says that the differences are whole numbers, such as counts. Their sums
    are on a lattice, so the tail begins at the sum itself, not halfway below. With n
    nonzero differences, a p-value is at least 2^(1 - n), the chance of n equal signs.

    >>> p = sign_flip_p_values(np.ones((10, 1)))  # ten prompts, all up by one
    >>> float(p[0]) == 2**-9
    True
    """
    columns = differences.shape[1]
    parts = [
        _block_p_values(
            np.asarray(differences[:, i : i + _BLOCK_SIZE], np.float64), integer
        )
        for i in range(0, columns, _BLOCK_SIZE)
    ]
    return np.concatenate(parts) if parts else np.ones(0)


def _block_p_values(
    d_PZ: Float[np.ndarray, "P Z"], integer: bool
) -> Float[np.ndarray, " Z"]:
    largest_Z = np.abs(d_PZ).max(axis=0, initial=0.0)
    scale_Z = np.where(largest_Z > 0, largest_Z, 1.0)
    size_PZ = np.abs(d_PZ) / scale_Z
    sum_Z = np.abs(d_PZ.sum(axis=0)) / scale_Z
    extreme_Z = sum_Z >= size_PZ.sum(axis=0) * (1 - 1e-9)
    target_Z = np.where(extreme_Z, 0.0, sum_Z)
    s_Z = _saddlepoint(size_PZ, target_Z)
    tanh_PZ = np.tanh(s_Z * size_PZ)
    curve_Z = (size_PZ**2 * (1 - tanh_PZ**2)).sum(axis=0)
    # log cosh x = |x| + log1p(exp(-2|x|)) - log 2, which does not overflow.
    lift_PZ = np.log1p(np.exp(-2 * s_Z * size_PZ)) - np.log(2.0) * (size_PZ > 0)
    lift_PZ = np.where(size_PZ > 0, lift_PZ + s_Z * size_PZ, 0.0)
    r_Z = np.sqrt(np.maximum(2 * (s_Z * target_Z - lift_PZ.sum(axis=0)), 0.0))
    tilt_Z = s_Z
    if integer:
        divisor_Z = np.gcd.reduce(np.abs(d_PZ).astype(np.int64), axis=0)
        # Flipping a sign changes the sum by twice the difference.
        span_Z = 2 * np.maximum(divisor_Z, 1) / scale_Z
        tilt_Z = -np.expm1(-span_Z * s_Z) / span_Z
    far_Z = r_Z > _NEAR_CENTER
    r_Z = np.where(far_Z, r_Z, 1.0)
    u_Z = np.where(far_Z, tilt_Z * np.sqrt(curve_Z), 1.0)
    density_Z = np.exp(-(r_Z**2) / 2) / np.sqrt(2 * np.pi)
    p_Z = np.where(far_Z, 2 * (ndtr(-r_Z) + density_Z * (1 / u_Z - 1 / r_Z)), 1.0)
    floor_Z = 0.5 ** np.maximum((d_PZ != 0).sum(axis=0) - 1.0, 0.0)
    if not integer:
        # The smooth tail begins halfway through the atom of the observed signs.
        p_Z = p_Z + floor_Z / 2
    return np.where(extreme_Z, floor_Z, np.clip(p_Z, floor_Z, 1.0))


def _saddlepoint(
    size_PZ: Float[np.ndarray, "P Z"], target_Z: Float[np.ndarray, " Z"]
) -> Float[np.ndarray, " Z"]:
    """Returns s with K'(s) = target. K' is concave: Newton from 0 never overshoots."""
    s_Z = np.zeros_like(target_Z)
    for _ in range(_NEWTON_STEPS):
        tanh_PZ = np.tanh(s_Z * size_PZ)
        missing_Z = target_Z - (size_PZ * tanh_PZ).sum(axis=0)
        slope_Z = (size_PZ**2 * (1 - tanh_PZ**2)).sum(axis=0)
        move_Z = missing_Z / np.where(slope_Z > 0, slope_Z, 1.0)
        s_Z = s_Z + move_Z
        if (np.abs(move_Z) <= 1e-9 * (1 + s_Z)).all():
            break
    return s_Z


def benjamini_hochberg(p_values: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
    """Returns adjusted p-values: if all up to q count, a share q is false on average.

    q_(i) = min_{j >= i} p_(j) M / j over the M values in ascending order.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5])).round(4).tolist()
    [0.04, 0.0533, 0.0533, 0.5]
    """
    return np.asarray(stats.false_discovery_control(p_values, method="bh"))
