"""Attention of completions to themselves and to the prompt that their group shares.

Keys and values are stored [rows, K, S, H], batch axes first, so no decode step
transposes the cache.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from job_jax.mesh import with_logical_constraint
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.kernels import kernel_attention, select_kernel
from rlvr_jax.models.masks import AttentionContext
from rlvr_jax.models.parameters import einsum_float32

# Finite, so a row without any visible key gives a uniform mix instead of NaN.
_MASKED_SCORE = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValues:
    """One layer's keys and values for some positions."""

    keys: Float[Array, " B K S H"]
    values: Float[Array, " B K S H"]

    @classmethod
    def from_projections(
        cls, key_BSKH: jax.Array, value_BSKH: jax.Array
    ) -> "KeyValues":
        """Returns projected keys and values, batch axes first, sharded on the mesh."""

        def stored(x_BSKH: jax.Array) -> jax.Array:
            return with_logical_constraint(
                x_BSKH.swapaxes(1, 2), "batch", "kv_heads", None, None
            )

        return cls(keys=stored(key_BSKH), values=stored(value_BSKH))

    def with_column(self, new: "KeyValues", column: jax.Array) -> "KeyValues":
        """Returns the keys and values with one position's in a column.

        Both may have a leading L axis, for all layers.
        """

        def write(past_BKSH: jax.Array, new_BK1H: jax.Array) -> jax.Array:
            return jax.lax.dynamic_update_slice_in_dim(
                past_BKSH, new_BK1H, column, axis=-2
            )

        return jax.tree.map(write, self, new)


def attend(
    queries: Float[Array, " B T N H"],
    key_values: KeyValues,
    context: AttentionContext,
    prefix: KeyValues | None = None,
    *,
    config: ModelConfig,
) -> Float[Array, " B T N H"]:
    """Returns softmax(q k / sqrt(H)) v over the shared prompt and the pass's own keys.

    Runs the kernel that `kernels.select_kernel` chooses, or else `reference_attention`
    on `config.attention_chunk_size` queries at a time. Results at padding are
    arbitrary.
    """
    T, chunk_size = queries.shape[1], config.attention_chunk_size
    kernel = select_kernel(config, window=context.window, length=T)
    if kernel != "plain" and context.packed:
        raise ValueError(
            f"{kernel} attention cannot separate the segments of packed rows; pack "
            "only where `kernels.takes_packed_rows` allows it"
        )
    if kernel != "plain" and context.window is not None:
        return kernel_attention(
            kernel,
            queries,
            (key_values.keys, key_values.values),
            None if prefix is None else (prefix.keys, prefix.values),
            context.token_mask,
            window=context.window,
            config=config,
        )

    def attend_plainly(queries: jax.Array, context: AttentionContext) -> jax.Array:
        return reference_attention(queries, key_values, context, prefix, config=config)

    if 0 < chunk_size < T:
        return _map_query_chunks(
            attend_plainly, queries, context, chunk_size=chunk_size
        )
    return attend_plainly(queries, context)


def reference_attention(
    queries: Float[Array, " B T N H"],
    key_values: KeyValues,
    context: AttentionContext,
    prefix: KeyValues | None = None,
    *,
    config: ModelConfig,
) -> Float[Array, " B T N H"]:
    """Returns attention computed from all its scores, in float32; it runs anywhere.

    The prompt's keys [P, K, S, H] serve all B = P G rows: for each prompt and key head,
    the scores are one product of the whole group's queries with S keys.
    """
    B, T, N, H = queries.shape
    K = key_values.keys.shape[1]
    R = N // K
    # The R query heads that share a key head follow one another: Q = R T.
    query_BKQH = queries.reshape(B, T, K, R, H).transpose(0, 2, 3, 1, 4)
    query_BKQH = query_BKQH.reshape(B, K, R * T, H)
    own_mask_B1QS = jnp.tile(context.mask[:, None], (1, 1, R, 1))
    own_BKQS = _scores(query_BKQH, key_values.keys, own_mask_B1QS, config)
    if prefix is None or context.prefix_mask is None:
        weights_BKQS = jax.nn.softmax(own_BKQS).astype(queries.dtype)
        mixed_BKQH = _weighted_values(weights_BKQS, key_values.values)
    else:
        P = prefix.keys.shape[0]
        mask_P1QS = context.prefix_mask[:, None]
        if context.packed and mask_P1QS.shape[2] > 1:  # each row has its own mask
            mask_P1QS = _group_by_prompt(jnp.tile(mask_P1QS, (1, 1, R, 1)), P)
        elif mask_P1QS.shape[2] > 1:
            mask_P1QS = jnp.tile(mask_P1QS, (1, 1, B // P * R, 1))
        prefix_PKQS = _scores(
            _group_by_prompt(query_BKQH, P), prefix.keys, mask_P1QS, config
        )
        mixed_BKQH = _softmax_over_both(
            own_BKQS, prefix_PKQS, key_values.values, prefix.values
        )
    mixed_BTKRH = mixed_BKQH.reshape(B, K, R, T, H).transpose(0, 3, 1, 2, 4)
    return mixed_BTKRH.reshape(B, T, N, H).astype(queries.dtype)


def _map_query_chunks(
    attend: Callable[[jax.Array, AttentionContext], jax.Array],
    queries: Float[Array, " B T N H"],
    context: AttentionContext,
    *,
    chunk_size: int,
) -> Float[Array, " B T N H"]:
    """Returns `attend(queries, context)`, computed for `chunk_size` queries at a time.

    The scores of all queries are [B, N, T, S] in float32. Eight completions of 3,072
    tokens after a prompt of 1,024 take 4.8 GB in one layer of 12 heads. Here only one
    chunk's scores exist at a time, and the backward pass computes them again.
    """
    T = queries.shape[1]
    count = -(-T // chunk_size)

    def chunks(x_BTX: jax.Array) -> jax.Array:
        """Returns [C, B, W, X], the last chunk padded with queries that are dropped."""
        padding = [(0, 0)] * x_BTX.ndim
        padding[1] = (0, count * chunk_size - T)
        padded = jnp.pad(x_BTX, padding)
        split = padded.reshape(-1, count, chunk_size, *padded.shape[2:])
        return split.swapaxes(0, 1)

    masks: dict[str, Any] = {"mask": chunks(context.mask)}
    if context.prefix_mask is not None and context.prefix_mask.shape[1] > 1:
        masks["prefix_mask"] = chunks(context.prefix_mask)

    @jax.checkpoint
    def attend_chunk(part: tuple[jax.Array, dict[str, Any]]) -> jax.Array:
        queries, masks = part
        return attend(queries, dataclasses.replace(context, **masks))

    mixed_CBWNH = jax.lax.map(attend_chunk, (chunks(queries), masks))
    mixed_BCWNH = mixed_CBWNH.swapaxes(0, 1)
    return mixed_BCWNH.reshape(-1, count * chunk_size, *queries.shape[2:])[:, :T]


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """Returns cap tanh(x / cap): about x near 0, within (-cap, cap); x if cap is 0."""
    return cap * jnp.tanh(x / cap) if cap else x


def _scores(
    query_BKQH: jax.Array, keys_BKSH: jax.Array, mask: jax.Array, config: ModelConfig
) -> jax.Array:
    scores_BKQS = einsum_float32("bkqh,bksh->bkqs", query_BKQH, keys_BKSH)
    scale = (config.query_pre_attn_scalar or query_BKQH.shape[-1]) ** -0.5
    return jnp.where(
        mask, soft_cap(scores_BKQS * scale, config.attn_logit_softcap), _MASKED_SCORE
    )


def _softmax_over_both(
    own_BKQS: jax.Array,
    prefix_PKQS: jax.Array,
    own_values_BKSH: jax.Array,
    prefix_values_PKSH: jax.Array,
) -> jax.Array:
    """Returns softmax(own and prefix scores) v, divided by its sum at the end.

    The two sets of scores are never concatenated, because that would copy all of them.
    """
    B, P = own_BKQS.shape[0], prefix_PKQS.shape[0]
    dtype = own_values_BKSH.dtype
    largest_BKQ1 = jax.lax.stop_gradient(
        jnp.maximum(
            # A pass may have no keys itself.
            own_BKQS.max(axis=-1, keepdims=True, initial=_MASKED_SCORE),
            _split_by_row(prefix_PKQS.max(axis=-1, keepdims=True), B),
        )
    )
    own_BKQS = jnp.exp(own_BKQS - largest_BKQ1)
    prefix_PKQS = jnp.exp(prefix_PKQS - _group_by_prompt(largest_BKQ1, P))
    total_BKQ1 = own_BKQS.sum(axis=-1, keepdims=True) + _split_by_row(
        prefix_PKQS.sum(axis=-1, keepdims=True), B
    )
    mixed_BKQH = _weighted_values(own_BKQS.astype(dtype), own_values_BKSH)
    shared_PKQH = _weighted_values(prefix_PKQS.astype(dtype), prefix_values_PKSH)
    return (mixed_BKQH + _split_by_row(shared_PKQH, B)) / total_BKQ1


def _weighted_values(weights_BKQS: jax.Array, values_BKSH: jax.Array) -> jax.Array:
    return einsum_float32("bkqs,bksh->bkqh", weights_BKQS, values_BKSH)


def _group_by_prompt(x_BKQX: jax.Array, P: int) -> jax.Array:
    """Returns [P, K, G Q, X]: the queries of a group side by side."""
    B, K, Q, X = x_BKQX.shape
    x_PKGQX = x_BKQX.reshape(P, B // P, K, Q, X).swapaxes(1, 2)
    return x_PKGQX.reshape(P, K, B // P * Q, X)


def _split_by_row(x_PKQX: jax.Array, B: int) -> jax.Array:
    """Returns [B, K, Q, X]: the inverse of `_group_by_prompt`."""
    P, K, Q, X = x_PKQX.shape
    G = B // P
    return x_PKQX.reshape(P, K, G, Q // G, X).swapaxes(1, 2).reshape(B, K, Q // G, X)
