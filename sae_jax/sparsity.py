"""The k B largest activations of a batch, by a threshold and with static shapes.

A selection is a cut: whatever is at least the cut is kept. The cut is searched by
counting, a few passes over the activations, because sorting them would cost more than
the matmul that made them. Positive float32 values are ordered as their bit patterns
are, so the search runs on integers and ends, exact up to ties. A strided sample tells
where to begin; interpolation makes a handful of passes of what halving would do in 31.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Below the smallest normal number a device may flush to 0, and 0 is never kept.
_SMALLEST = 0x00800000
_INFINITY = 0x7F800000
_OCTAVE = 1 << 23  # in bit patterns; across more than that, densities tell nothing
_SAMPLE = 1 << 18  # entries that show well enough where the cut lies
_LANES = 8  # slices that the sample is taken in
_FEW = 16  # entries; spread too unevenly for a straight line
_MARGIN = 4.0  # a sampled count is trusted within so many standard deviations

# Cuts [R] -> how many entries are at least each; R searches run side by side.
Counter = Callable[[Float[Array, " R"]], Int[Array, " R"]]


def batch_cut(
    parts: Sequence[Float[Array, " B _"]],
    count: Int[Array, ""] | int,
    *,
    slack: Int[Array, ""] | int = 0,
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """Returns a cut that keeps the `count` largest positive entries, and their number.

    The cut is positive. Ties at it are all kept; of fewer positive entries than
    `count`, all. With `slack` up to so many entries more are kept, which takes fewer
    passes. Nothing here has a gradient.
    """
    parts = [jax.lax.stop_gradient(part) for part in parts]
    count_R = jnp.full(1, count, jnp.int32)
    size = sum(part.size for part in parts)
    first = [jnp.full(1, _SMALLEST, jnp.int32)]
    if size > 4 * _SAMPLE:
        first = _enclosing(parts, count_R, size=size)
    cut_R, kept_R = search(
        functools.partial(_counts, parts), count_R, first=first, slack=slack
    )
    return cut_R[0], kept_R[0]


def row_cuts(
    values_BN: Float[Array, " B N"], count: Int[Array, ""] | int
) -> tuple[Float[Array, " B"], Int[Array, " B"]]:
    """Returns `batch_cut` for each row by itself."""
    values_BN = jax.lax.stop_gradient(values_BN)
    count_B = jnp.full(values_BN.shape[0], count, jnp.int32)
    return search(
        lambda cut_B: jnp.sum(values_BN >= cut_B[:, None], axis=1, dtype=jnp.int32),
        count_B,
        first=[jnp.full_like(count_B, _SMALLEST)],
    )


def keep(pre: Float[Array, " B N"], cut: Float[Array, " M 1"]) -> Float[Array, " B N"]:
    """Returns the entries that are at least the cut, a positive number; others are 0.

    The cut has one row for the whole batch, or one for each row. Gradients pass where
    an entry is kept.
    """
    return jnp.where(pre >= cut, pre, 0.0)


def search(
    counter: Counter,
    count_R: Int[Array, " R"],
    *,
    first: Sequence[Int[Array, " R"]],
    slack: Int[Array, ""] | int = 0,
    loop: Callable = jax.lax.while_loop,
) -> tuple[Float[Array, " R"], Int[Array, " R"]]:
    """Returns cuts at or above which `count` entries lie, and how many really do.

    Exactly so many; or up to `slack` more; or more because of ties; or fewer, where
    there are no more positive ones. `first` are the bit patterns to look at before
    all, and need not be right. A bracket low < high with above >= count > below holds
    throughout, so every pass narrows it.
    """

    def narrowed(bracket: tuple, probe_R: Array) -> tuple:
        low_R, high_R, above_R, below_R, passes = bracket
        found_R = counter(_as_float(probe_R))
        # Of first probes, a later one may lie outside what an earlier one left.
        inside_R = (probe_R > low_R) & (probe_R < high_R)
        up_R = inside_R & (found_R >= count_R)
        down_R = inside_R & (found_R < count_R)
        return (
            jnp.where(up_R, probe_R, low_R),
            jnp.where(down_R, probe_R, high_R),
            jnp.where(up_R, found_R, above_R),
            jnp.where(down_R, found_R, below_R),
            passes + 1,
        )

    def unfinished(bracket: tuple) -> Array:
        low_R, high_R, above_R, *_ = bracket
        return jnp.any((above_R - count_R > slack) & (high_R - low_R > 1))

    # Nothing is known of the lowest pattern; if it stays, every positive entry is kept.
    bracket = (
        jnp.full_like(count_R, _SMALLEST - 1),
        jnp.full_like(count_R, _INFINITY),
        jnp.full_like(count_R, jnp.iinfo(jnp.int32).max),
        jnp.zeros_like(count_R),
        jnp.int32(0),
    )
    for probe_R in first:
        bracket = narrowed(bracket, probe_R)
    bracket = loop(
        unfinished, lambda b: narrowed(b, _probe(b, count_R, slack)), bracket
    )
    low_R, _, above_R, below_R, _ = bracket
    all_kept_R = low_R < _SMALLEST  # then high_R is _SMALLEST: below it lies no number
    kept_R = jnp.where(all_kept_R, below_R, above_R)
    return _as_float(jnp.maximum(low_R, _SMALLEST)), kept_R


def _probe(
    bracket: tuple, count_R: Int[Array, " R"], slack: Int[Array, ""] | int
) -> Int[Array, " R"]:
    """Returns where to count next: near the straight line between the bracket's ends.

    n entries spread evenly over a bracket stray from the line by sqrt(n) / 2 of them,
    one standard deviation. Aiming two of those to the side where more entries lie
    leaves the cut on the other side most of the time, so that either end comes close
    in turn. Few entries, or a wide bracket, are halved; every sixth pass halves too,
    which bounds the number of passes whatever the spread. Next to an end that the
    first probes did not enclose, the first steps are an eighth of an octave, 9 %.
    """
    low_R, high_R, above_R, below_R, passes = bracket
    gap_R = (high_R - low_R).astype(jnp.float32)
    inside_R = above_R.astype(jnp.float32) - below_R.astype(jnp.float32)
    over_R = (above_R - count_R).astype(jnp.float32)
    stray_R = jnp.sqrt(inside_R)
    slack = jnp.asarray(slack).astype(jnp.float32)
    aside_R = jnp.where(2 * over_R > inside_R, -stray_R, stray_R)
    aim_R = over_R - 0.5 * slack + jnp.where(slack > stray_R, 0.0, aside_R)
    halve_R = (inside_R <= _FEW) | (gap_R > _OCTAVE) | (passes % 6 == 5)
    share_R = jnp.clip(jnp.where(halve_R, 0.5, aim_R / inside_R), 0.0, 1.0)
    step_R = (share_R * gap_R).astype(jnp.int32)
    bottom_R = (low_R < _SMALLEST) & (passes < 6)
    top_R = (high_R == _INFINITY) & (passes < 6)
    step_R = jnp.where(top_R & ~bottom_R, _OCTAVE // 8, step_R)
    step_R = jnp.where(bottom_R & ~top_R, high_R - low_R - _OCTAVE // 8, step_R)
    return jnp.clip(low_R + step_R, low_R + 1, high_R - 1)


def _enclosing(
    parts: Sequence[Array], count_R: Int[Array, " 1"], *, size: int
) -> list[Int[Array, " 1"]]:
    """Returns bit patterns that most likely enclose the cut, from a sample.

    Every column is sampled, by few rows: latents differ more than tokens do.
    """
    stride = size // _SAMPLE
    sample = [
        part[j * stride // _LANES :: stride, j::_LANES]
        for part in parts
        for j in range(_LANES)
    ]
    expected_R = count_R.astype(jnp.float32) * (sum(s.size for s in sample) / size)
    margin_R = _MARGIN * jnp.sqrt(expected_R)
    wanted_R = jnp.concatenate([expected_R + margin_R, expected_R - margin_R])
    cut_R, _ = search(
        lambda cut_R: jnp.concatenate([_counts(sample, cut[None]) for cut in cut_R]),
        jnp.maximum(wanted_R, 1.0).astype(jnp.int32),
        first=[],
        slack=(margin_R[0] / _MARGIN).astype(jnp.int32),
    )
    bits_R = jax.lax.bitcast_convert_type(cut_R, jnp.int32)
    return [bits_R[:1], bits_R[1:]]


def _counts(
    parts: Sequence[Float[Array, " B _"]], cut_R: Float[Array, " 1"]
) -> Int[Array, " 1"]:
    """Returns how many entries of all parts are at least the cut.

    Rows first, and a barrier before they are added: one long sum would run on one core.
    """
    rows = [jnp.sum(part >= cut_R[0], axis=1, dtype=jnp.int32) for part in parts]
    return sum(row_B.sum() for row_B in jax.lax.optimization_barrier(rows))[None]


def just_below(cut: Float[Array, "*R"]) -> Float[Array, "*R"]:
    """Returns the largest number below a positive cut: what the cut keeps exceeds it.

    0.0 for the smallest cut, which every positive entry reaches.
    """
    bits = jax.lax.bitcast_convert_type(cut, jnp.int32)
    return jnp.where(bits > _SMALLEST, _as_float(bits - 1), 0.0)


def _as_float(bits: Int[Array, "*R"]) -> Float[Array, "*R"]:
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
