"""How a matrix moved, W_0 -> W_T, and how noise of the same size would have moved it.

With D = W_T - W_0 and the k leading singular vectors U_k, V_k of W_0, where k is a
tenth of the smaller side:

    relative_size     |D| / |W_0|, Frobenius
    moved_float32     share of entries that differ
    moved_bfloat16    share of entries that differ once both are rounded to bfloat16
    rank_one_share    s_1(D)^2 / sum of s_i(D)^2
    principal_share   |U_k' D V_k|^2 / |D|^2
    principal_angle   mean angle between the k leading subspaces of W_0 and W_T, left
                      and right, in degrees

For a path of checkpoints W_0, W_1, ..., W_T at steps t, with increments d_i:

    linearity         R^2 of u_1' (W_t - W_0) v_1 over t, with u_1 and v_1 of D
    straightness      |D| / sum of |d_i|: 1 on a straight line

In many dimensions, a walk of independent increments is also linear, because its
projection onto its own end grows with the steps. Straightness distinguishes the two: it
is sqrt(n) times smaller for the walk. References:
  off the principal directions  https://arxiv.org/abs/2511.08567
  few entries move in bfloat16   https://arxiv.org/abs/2505.11711
The mean of principal angles over both sides, and the comparison with noise, are ours.
"""

import dataclasses
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import numpy.typing as npt
from scipy import linalg

_PRINCIPAL_FRACTION = 0.1  # of the smaller side's singular vectors

Matrix = np.ndarray
Principal = tuple[Matrix, Matrix]  # left and right singular vectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """How far one tensor moved, and in which directions.

    The last three measures are only for matrices. NaN means undefined, such as the
    directions of a tensor that did not move.
    """

    relative_size: float
    moved_float32: float
    moved_bfloat16: float
    rank_one_share: float = np.nan
    principal_share: float = np.nan
    principal_angle: float = np.nan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Straightness:
    """How straight one matrix moved; NaN with fewer than two checkpoints after W_0."""

    linearity: float
    straightness: float


def measure_change(
    before: Matrix, after: Matrix, *, principal: Principal | None = None
) -> Change:
    """Returns the change of a tensor: a vector [N] or a matrix [M, N].

    `principal` is `principal_vectors(before)`, computed here if not given.
    """
    delta = after.astype(np.float32) - before.astype(np.float32)
    size = float(np.linalg.norm(delta))
    whole = float(np.linalg.norm(before.astype(np.float32)))
    change = Change(
        relative_size=size / whole if whole else np.nan,
        moved_float32=float(np.mean(delta != 0)),
        moved_bfloat16=float(np.mean(moved_entries(before, after))),
    )
    if before.ndim < 2 or size == 0:
        return change
    left_MK, right_NK = principal or principal_vectors(before)
    moved_left_MK, moved_right_NK = principal_vectors(after)
    angles = [
        linalg.subspace_angles(left_MK, moved_left_MK),
        linalg.subspace_angles(right_NK, moved_right_NK),
    ]
    inside_KK = left_MK.T @ delta @ right_NK
    return dataclasses.replace(
        change,
        rank_one_share=float(leading_direction(delta)[1] ** 2 / size**2),
        principal_share=float(np.sum(inside_KK**2) / size**2),
        principal_angle=float(np.degrees(np.mean(np.concatenate(angles)))),
    )


def principal_vectors(matrix: Matrix) -> Principal:
    """Returns the leading singular vectors of a matrix, [M, K] and [N, K]."""
    left, _, right = linalg.svd(matrix.astype(np.float32), full_matrices=False)
    count = max(1, round(_PRINCIPAL_FRACTION * min(matrix.shape)))
    return left[:, :count], right[:count].T


def add_noise(
    before: Matrix, after: Matrix, *, generator: np.random.Generator
) -> Matrix:
    """Returns W_0 moved as far as W_T in a uniform random direction, in float32.

    In bfloat16 most of a small change would be rounded away.
    """
    size = np.linalg.norm(after.astype(np.float32) - before.astype(np.float32))
    direction = generator.standard_normal(before.shape, np.float32)
    return before.astype(np.float32) + direction * (size / np.linalg.norm(direction))


def moved_entries(before: Matrix, after: Matrix) -> npt.NDArray[np.bool_]:
    """Returns which entries differ in bfloat16."""
    rounded = (x.astype(ml_dtypes.bfloat16) for x in (before, after))
    return np.not_equal(*rounded)


def largest_entries(before: Matrix, after: Matrix) -> npt.NDArray[np.bool_]:
    """Returns the hundredth of the entries (at least one) that moved farthest.

    Entries that did not move never count.
    """
    size = np.abs(after.astype(np.float32) - before.astype(np.float32))
    count = max(1, size.size // 100)
    chosen = np.zeros(size.size, bool)
    chosen[np.argpartition(size.ravel(), -count)[-count:]] = True
    return chosen.reshape(size.shape) & (size > 0)


def leading_direction(delta: Matrix) -> tuple[Matrix, float, Matrix]:
    """Returns the first singular vectors and value of a matrix: u [M], s, v [N]."""
    left_MK, value_K, right_KN = linalg.svd(delta, full_matrices=False)
    return left_MK[:, 0], float(value_K[0]), right_KN[0]


def measure_path(
    steps: Sequence[int],
    projections: Sequence[float],
    *,
    lengths: Sequence[float],
    size: float,
) -> Straightness:
    """Returns how straight a matrix moved.

    `projections` are u_1' (W_t - W_0) v_1 at `steps`, and the last is for W_T.
    `lengths` are |d_i|, and `size` is |D|.
    """
    if len(steps) < 2 or not any(lengths):
        return Straightness(linearity=np.nan, straightness=np.nan)
    return Straightness(
        linearity=_squared_correlation(steps, projections),
        straightness=float(size / sum(lengths)),
    )


def measure_walk(steps: Sequence[int], lengths: Sequence[float]) -> Straightness:
    """Returns the straightness of a walk with these increments at right angles."""
    squares = np.cumsum(np.square(lengths))
    return measure_path(
        steps, [*squares], lengths=lengths, size=float(np.sqrt(squares[-1]))
    )


def _squared_correlation(steps: Sequence[int], values: npt.ArrayLike) -> float:
    """Returns R^2 of a line through the values over steps, with 0 at step 0."""
    value_N = np.concatenate([[0.0], np.asarray(values, np.float64)])
    if np.ptp(value_N) == 0:
        return np.nan
    return float(np.corrcoef([0, *steps], value_N)[0, 1] ** 2)
