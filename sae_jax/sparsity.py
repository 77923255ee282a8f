"""Keeps the k B largest activations of a batch by a threshold, with static shapes.

Every activation at or above the threshold is kept. We search for the threshold by
counting, in a few passes over the activations, because sorting them would cost more
than the matmul that made them. Positive float32 values have the same order as their bit
patterns, so the search runs on integers and ends with a result that is exact up to
ties. A strided sample gives the starting point, and interpolation needs a handful of
passes where halving would need 31.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# A device may flush smaller numbers than the smallest normal one to 0, which is never
# kept.
_MIN_NORMAL_BITS = 0x00800000
_INFINITY_BITS = 0x7F800000
_OCTAVE_BITS = 1 << 23  # an octave in bit patterns; wider brackets are halved
_SAMPLE_SIZE = 1 << 18  # entries, enough to locate the threshold
_SAMPLE_SLICES = 8  # slices in which the sample is taken
_BISECT_BELOW = 16  # with fewer entries between the ends, we halve
_SAMPLE_MARGIN_STDS = 4.0  # margin around a count that is estimated from the sample

# Thresholds [R] -> the number of entries at or above each; R searches run together.
Counter = Callable[[Float[Array, " R"]], Int[Array, " R"]]


def batch_threshold(
    parts: Sequence[Float[Array, " B _"]],
    count: Int[Array, ""] | int,
    *,
    max_excess: Int[Array, ""] | int = 0,
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """Returns the threshold that keeps the `count` largest, and how many it keeps.

    The threshold is positive. All ties at it are kept; if there are fewer positive
    entries than `count`, all of them are kept. `max_excess` allows keeping up to that
    many more, which saves passes. Nothing here has a gradient.

    >>> threshold, kept = batch_threshold([jnp.array([[3.0, 1.0], [2.0, -1.0]])], 2)
    >>> bool(1.0 < threshold <= 2.0), int(kept)
    (True, 2)
    """
    parts = [jax.lax.stop_gradient(part) for part in parts]
    count_R = jnp.full(1, count, jnp.int32)
    first = [jnp.full(1, _MIN_NORMAL_BITS, jnp.int32)]
    if is_large(sum(part.size for part in parts)):
        bounds = estimate_bounds(parts, count)
        first = [jax.lax.bitcast_convert_type(b, jnp.int32)[None] for b in bounds]
    threshold_R, kept_R = search_thresholds(
        functools.partial(_count_at_least, parts),
        count_R,
        initial_probes=first,
        max_excess=max_excess,
    )
    return threshold_R[0], kept_R[0]


def is_large(size: int) -> bool:
    """Returns whether a batch is large enough to locate its threshold by a sample."""
    return size > 4 * _SAMPLE_SIZE


def estimate_bounds(
    parts: Sequence[Float[Array, " B _"]], count: Int[Array, ""] | int
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Returns two numbers that most likely enclose the threshold, from a sample.

    The sample has every column but few rows, because latents differ more than tokens.
    """
    size = sum(part.size for part in parts)
    stride = max(size // _SAMPLE_SIZE, 1)
    sample = [
        jax.lax.stop_gradient(part)[
            j * stride // _SAMPLE_SLICES :: stride, j::_SAMPLE_SLICES
        ]
        for part in parts
        for j in range(_SAMPLE_SLICES)
    ]
    expected_R = jnp.full(1, count, jnp.int32).astype(jnp.float32) * (
        sum(s.size for s in sample) / size
    )
    margin_R = _SAMPLE_MARGIN_STDS * jnp.sqrt(expected_R)
    wanted_R = jnp.concatenate([expected_R + margin_R, expected_R - margin_R])
    threshold_R, _ = search_thresholds(
        lambda threshold_R: jnp.concatenate(
            [_count_at_least(sample, threshold[None]) for threshold in threshold_R]
        ),
        jnp.maximum(wanted_R, 1.0).astype(jnp.int32),
        initial_probes=[],
        max_excess=(margin_R[0] / _SAMPLE_MARGIN_STDS).astype(jnp.int32),
    )
    return threshold_R[0], threshold_R[1]


def row_thresholds(
    values_BN: Float[Array, " B N"], count: Int[Array, ""] | int
) -> tuple[Float[Array, " B"], Int[Array, " B"]]:
    """Returns each row's own threshold for `count` entries, and how many it keeps.

    >>> threshold_B, kept_B = row_thresholds(jnp.array([[3.0, 1.0], [2.0, 4.0]]), 1)
    >>> (threshold_B > jnp.array([1.0, 2.0])).tolist(), kept_B.tolist()
    ([True, True], [1, 1])
    """
    values_BN = jax.lax.stop_gradient(values_BN)
    count_B = jnp.full(values_BN.shape[0], count, jnp.int32)
    return search_thresholds(
        lambda threshold_B: jnp.sum(
            values_BN >= threshold_B[:, None], axis=1, dtype=jnp.int32
        ),
        count_B,
        initial_probes=[jnp.full_like(count_B, _MIN_NORMAL_BITS)],
    )


def apply_threshold(
    pre: Float[Array, " B N"], threshold: Float[Array, " M 1"]
) -> Float[Array, " B N"]:
    """Returns the entries at or above the positive threshold, and 0 for the others.

    The threshold has one row for the whole batch, or one for each row. Gradients pass
    only through kept entries.

    >>> apply_threshold(jnp.array([[3.0, 1.0]]), jnp.array([[2.0]])).tolist()
    [[3.0, 0.0]]
    """
    return jnp.where(pre >= threshold, pre, 0.0)


def search_thresholds(
    counter: Counter,
    count_R: Int[Array, " R"],
    *,
    initial_probes: Sequence[Int[Array, " R"]],
    max_excess: Int[Array, ""] | int = 0,
    while_loop: Callable = jax.lax.while_loop,
) -> tuple[Float[Array, " R"], Int[Array, " R"]]:
    """Returns thresholds that keep `count_R` entries, and the exact numbers they keep.

    The numbers can be up to `max_excess` larger, larger because of ties, or smaller if
    there are fewer positive entries. `initial_probes` are the first bit patterns to
    count at; they need not be good guesses. The bracket low < high with above >= count
    > below holds throughout, so every pass narrows it.

    >>> values = jnp.array([5.0, 4.0, 3.0, 2.0, 1.0])
    >>> threshold_R, number_R = search_thresholds(
    ...     lambda threshold_R: jnp.sum(values >= threshold_R, dtype=jnp.int32)[None],
    ...     jnp.array([2], jnp.int32),
    ...     initial_probes=[],
    ... )
    >>> 3.0 < float(threshold_R[0]) <= 4.0, number_R.tolist()
    (True, [2])
    """
    narrow = functools.partial(_narrow_bracket, counter, count_R)

    def is_unfinished(bracket: tuple) -> Array:
        low_R, high_R, above_R, *_ = bracket
        return jnp.any((above_R - count_R > max_excess) & (high_R - low_R > 1))

    # We never count at the lowest pattern; if it stays, all positive entries are kept.
    bracket = (
        jnp.full_like(count_R, _MIN_NORMAL_BITS - 1),
        jnp.full_like(count_R, _INFINITY_BITS),
        jnp.full_like(count_R, jnp.iinfo(jnp.int32).max),
        jnp.zeros_like(count_R),
        jnp.int32(0),
    )
    for probe_R in initial_probes:
        bracket = narrow(bracket, probe_R)
    bracket = while_loop(
        is_unfinished, lambda b: narrow(b, _next_probe(b, count_R, max_excess)), bracket
    )
    low_R, _, above_R, below_R, _ = bracket
    # If low_R stayed, high_R is the smallest normal number, and no entry is below it.
    all_kept_R = low_R < _MIN_NORMAL_BITS
    kept_R = jnp.where(all_kept_R, below_R, above_R)
    return _as_float(jnp.maximum(low_R, _MIN_NORMAL_BITS)), kept_R


def _narrow_bracket(
    counter: Counter, count_R: Int[Array, " R"], bracket: tuple, probe_R: Array
) -> tuple:
    """Returns the bracket after one more pass, which counts at the probe."""
    low_R, high_R, above_R, below_R, passes = bracket
    count_at_probe_R = counter(_as_float(probe_R))
    # A later initial probe may lie outside the bracket that an earlier one left.
    inside_R = (probe_R > low_R) & (probe_R < high_R)
    up_R = inside_R & (count_at_probe_R >= count_R)
    down_R = inside_R & (count_at_probe_R < count_R)
    return (
        jnp.where(up_R, probe_R, low_R),
        jnp.where(down_R, probe_R, high_R),
        jnp.where(up_R, count_at_probe_R, above_R),
        jnp.where(down_R, count_at_probe_R, below_R),
        passes + 1,
    )


def _next_probe(
    bracket: tuple, count_R: Int[Array, " R"], max_excess: Int[Array, ""] | int
) -> Int[Array, " R"]:
    """Returns where to count next: near the straight line between the bracket's ends.

    If n entries are spread evenly over a bracket, counts deviate from the line by
    sqrt(n) / 2 (one standard deviation). We aim two standard deviations to the side
    with more entries. Most of the time this leaves the threshold on the other side, so
    both ends move in turn. With few entries or a wide bracket we halve. Every sixth
    pass also halves, which bounds the number of passes for any distribution. Near an
    end that the first probes did not enclose, the first steps are an eighth of an
    octave, 9 %.
    """
    low_R, high_R, above_R, below_R, passes = bracket
    gap_R = (high_R - low_R).astype(jnp.float32)
    inside_R = above_R.astype(jnp.float32) - below_R.astype(jnp.float32)
    over_R = (above_R - count_R).astype(jnp.float32)
    stray_R = jnp.sqrt(inside_R)
    max_excess = jnp.asarray(max_excess).astype(jnp.float32)
    aside_R = jnp.where(2 * over_R > inside_R, -stray_R, stray_R)
    aim_R = over_R - 0.5 * max_excess + jnp.where(max_excess > stray_R, 0.0, aside_R)
    halve_R = (inside_R <= _BISECT_BELOW) | (gap_R > _OCTAVE_BITS) | (passes % 6 == 5)
    share_R = jnp.clip(jnp.where(halve_R, 0.5, aim_R / inside_R), 0.0, 1.0)
    step_R = (share_R * gap_R).astype(jnp.int32)
    bottom_R = (low_R < _MIN_NORMAL_BITS) & (passes < 6)
    top_R = (high_R == _INFINITY_BITS) & (passes < 6)
    step_R = jnp.where(top_R & ~bottom_R, _OCTAVE_BITS // 8, step_R)
    step_R = jnp.where(bottom_R & ~top_R, high_R - low_R - _OCTAVE_BITS // 8, step_R)
    return jnp.clip(low_R + step_R, low_R + 1, high_R - 1)


def _count_at_least(
    parts: Sequence[Float[Array, " B _"]], threshold_R: Float[Array, " 1"]
) -> Int[Array, " 1"]:
    """Returns how many entries of all parts are at or above the threshold.

    It counts each row first and adds the rows behind a barrier, because one long sum
    would run on one core.
    """
    rows = [jnp.sum(part >= threshold_R[0], axis=1, dtype=jnp.int32) for part in parts]
    return sum(row_B.sum() for row_B in jax.lax.optimization_barrier(rows))[None]


def just_below(threshold: Float[Array, "*R"]) -> Float[Array, "*R"]:
    """Returns the largest number below a positive threshold, or 0 below the smallest.

    `encode` keeps latents above its threshold; the search also keeps those at it.

    >>> just_below(jnp.array([1.0]))[0] < 1.0
    Array(True, dtype=bool)
    """
    bits = jax.lax.bitcast_convert_type(threshold, jnp.int32)
    return jnp.where(bits > _MIN_NORMAL_BITS, _as_float(bits - 1), 0.0)


def _as_float(bits: Int[Array, "*R"]) -> Float[Array, "*R"]:
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
