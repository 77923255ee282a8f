"""Stochastic rounding: bfloat16 that is right on average.

A step of 1e-6 on a weight of 0.02 lies far below half of bfloat16's spacing, 1e-4, and
rounding to the nearest would undo every one. Rounded up with the probability that the
step is of the spacing, the mean over steps moves as float32 does (arXiv 2010.06192).
"""

import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt16, UInt32

_DROPPED = 16  # bits of a float32's mantissa that a bfloat16 has no room for


def stochastic_round(
    x: Float[Array, "*shape"], bits: UInt16[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Returns float32 x in bfloat16, one of its two neighbours there.

    Of all 2^16 values of `bits`, so many round x away from 0 that the mean over them is
    x exactly. What bfloat16 can hold stays as it is, and so does what is not finite.
    """
    raw = jax.lax.bitcast_convert_type(x, jnp.uint32)
    raised = raw + bits.astype(jnp.uint32)
    kept = (raised >> _DROPPED).astype(jnp.uint16)
    rounded = jax.lax.bitcast_convert_type(kept, jnp.bfloat16)
    return jnp.where(jnp.isfinite(x), rounded, x.astype(jnp.bfloat16))


def narrow(tree: Any, like: Any, *, seed: int, step: Int[Array, ""]) -> Any:
    """Returns the tree in the dtypes of `like`: what is bfloat16 there is rounded.

    A number's bits are a function of (seed, step, its leaf's path, its place in the
    leaf): not of other leaves, nor of how any of them lies on the mesh.
    """
    start = _mixed(_mixed(jnp.uint32(seed)) + step.astype(jnp.uint32))

    def rounded(path: tuple, x: Array, old: Array) -> Array:
        if old.dtype != jnp.bfloat16:
            return x
        name = zlib.crc32(jax.tree_util.keystr(path).encode())
        return stochastic_round(x, random_bits(start + jnp.uint32(name), x.shape))

    return jax.tree_util.tree_map_with_path(rounded, tree, like)


def random_bits(
    start: UInt32[Array, ""], shape: tuple[int, ...]
) -> UInt16[Array, "..."]:
    """Returns 16 bits for each place of an array, each a hash of `start` and the place.

    A few integer operations a number, and no device needs another's; JAX's own keys
    take some 100. Places are counted modulo 2^32.
    """
    strides = [math.prod(shape[axis + 1 :]) % 2**32 for axis in range(len(shape))]
    place = jnp.zeros(shape, jnp.uint32)
    for axis, stride in enumerate(strides):
        along = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        place = place + along * np.uint32(stride)
    word = jnp.broadcast_to(_mixed(start), shape)
    return (_mixed(_mixed(place ^ word) + word) >> _DROPPED).astype(jnp.uint16)


def wide(tree: Any) -> Any:
    """Returns the tree with its floating-point numbers in float32."""
    return jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        tree,
    )


def _mixed(x: Array) -> Array:
    """Returns a hash of each uint32: every bit of x turns about half of its bits."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * np.uint32(factor)
    return x ^ (x >> 16)
