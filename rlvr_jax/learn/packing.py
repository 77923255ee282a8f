"""Packing: several completions of one prompt in one row, and back to one row each.

A completion with its own row needs the width of the micro-batch's longest, so a
short one is mostly padding. Packed, several of a group follow each other in one row.
Segments keep their attention apart, and in each, positions count from the prompt's end.
Every [B, T] array stays [B, T]; only the policy's pass runs over fewer rows.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from rlvr_jax.types import Packing


def pack_lengths(lengths: Int[np.ndarray, " G"], width: int) -> list[list[int]]:
    """Returns which completions share a row of `width` tokens: first-fit decreasing.

    Completions of length 0 are in no row. There are at most 11/9 times the fewest
    possible rows, plus one (Johnson et al. 1974).

    >>> pack_lengths(np.array([3, 9, 6, 1, 0]), 10)
    [[1, 3], [2, 0]]
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for g in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[g])
        if length == 0:
            continue
        row = next((i for i, left in enumerate(room) if left >= length), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(width)
        rows[row].append(g)
        room[row] -= length
    return rows


def count_rows(lengths: Int[np.ndarray, " P G"], width: int) -> Int[np.ndarray, " P"]:
    """Returns how many rows of `width` tokens each group packs into.

    The number is rounded up to a multiple of an eighth of its completions, and at most
    their number, because each distinct number of rows is another program to compile.

    >>> count_rows(np.array([[3, 9, 6, 1], [1, 1, 1, 1], [9, 9, 9, 9]]), 10).tolist()
    [2, 1, 4]
    """
    G = lengths.shape[1]
    step = max(1, G // 8)
    needed_P = np.array([max(1, len(pack_lengths(one, width))) for one in lengths])
    return np.minimum(G, -(-needed_P // step) * step)


def pack_completions(lengths: Int[np.ndarray, " P G"], width: int) -> Packing:
    """Returns the places of the completions in packed rows.

    Every group gets as many rows as the group that needs the most.
    """
    P, G = lengths.shape
    count = int(count_rows(lengths, width).max())
    source_PCT = np.full((P, count, width), -1, np.int32)
    target_PGT = np.zeros((P, G, width), np.int32)
    for p, one in enumerate(lengths):
        for row, completions in enumerate(pack_lengths(one, width)):
            start = 0
            for g in completions:
                index = np.arange(one[g], dtype=np.int32)
                columns = slice(start, start + len(index))
                source_PCT[p, row, columns] = g * width + index
                target_PGT[p, g, : len(index)] = row * width + start + index
                start += len(index)
    return Packing(
        source=source_PCT.reshape(P * count, width),
        target=target_PGT.reshape(P * G, width),
    )


def pack_tokens(tokens: Int[Array, " B T"], packing: Packing, P: int) -> jax.Array:
    """Returns the packed rows [U, T] of the completions' tokens, 0 in padding."""
    source_PX = packing.source.reshape(P, -1)
    packed_PX = jnp.take_along_axis(
        tokens.reshape(P, -1), jnp.maximum(source_PX, 0), axis=1
    )
    return jnp.where(source_PX >= 0, packed_PX, 0).reshape(packing.source.shape)


def unpack(values: Array, packing: Packing, P: int) -> jax.Array:
    """Returns values of packed tokens, [U, T] or [U, T, D], at [B, T] or [B, T, D].

    Beyond each length the values are arbitrary and pass no gradient.
    """
    rest = values.shape[2:]
    unpacked = _gather(
        values.reshape(P, -1, *rest),
        packing.target.reshape(P, -1),
        packing.source.reshape(P, -1),
    )
    return unpacked.reshape(*packing.target.shape, *rest)


@jax.custom_vjp
def _gather(values: Array, target_PX: Array, source_PX: Array) -> Array:
    """Returns values[p, target[p]]; its gradient is a gather too, by `source`.

    Each true token has one place on either side, so the transposed gather, normally a
    scatter, equals a gather by the inverse map.
    """
    return _take(values, target_PX)


def _gather_forward(
    values: Array, target_PX: Array, source_PX: Array
) -> tuple[Array, Array]:
    return _take(values, target_PX), source_PX


def _gather_backward(source_PX: Array, slope: Array) -> tuple[Array, None, None]:
    is_token = _expand(source_PX >= 0, slope.ndim)
    back = _take(slope, jnp.maximum(source_PX, 0))
    return jnp.where(is_token, back, jnp.zeros_like(back)), None, None


_gather.defvjp(_gather_forward, _gather_backward)


def _take(values: Array, index_PX: Array) -> Array:
    return jnp.take_along_axis(values, _expand(index_PX, values.ndim), axis=1)


def _expand(x_PX: Array, ndim: int) -> Array:
    return jnp.expand_dims(x_PX, range(2, ndim))
