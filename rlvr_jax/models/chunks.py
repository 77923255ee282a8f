"""Attention for a chunk of queries at a time, so that not all scores exist at once.

Plain attention's scores are [B, N, T, S] in float32: eight completions of 3,072 tokens
behind a prompt of 1,024 have 4.8 GB of them in a layer of 12 heads. A chunk's are
computed again in the backward pass.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.models.views import View


def in_chunks(
    mix: Callable[[jax.Array, View], jax.Array],
    queries: Float[Array, " B T N H"],
    view: View,
    *,
    width: int,
) -> Float[Array, " B T N H"]:
    """Returns `mix(queries, view)`, computed for `width` queries at a time."""
    T = queries.shape[1]
    count = -(-T // width)

    def chunks(x_BTX: jax.Array) -> jax.Array:
        """Returns [C, B, W, X]: padding comes last, sees nothing and is dropped."""
        unused = [(0, 0)] * x_BTX.ndim
        unused[1] = (0, count * width - T)
        padded = jnp.pad(x_BTX, unused)
        split = padded.reshape(-1, count, width, *padded.shape[2:])
        return split.swapaxes(0, 1)

    masks: dict[str, Any] = {"own_mask": chunks(view.own_mask)}
    if view.prefix_mask is not None and view.prefix_mask.shape[1] > 1:
        masks["prefix_mask"] = chunks(view.prefix_mask)

    @jax.checkpoint
    def of_chunk(part: tuple[jax.Array, dict[str, Any]]) -> jax.Array:
        queries, masks = part
        return mix(queries, dataclasses.replace(view, **masks))

    mixed_CBWNH = jax.lax.map(of_chunk, (chunks(queries), masks))
    mixed_BCWNH = mixed_CBWNH.swapaxes(0, 1)
    return mixed_BCWNH.reshape(-1, count * width, *queries.shape[2:])[:, :T]
