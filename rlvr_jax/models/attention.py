"""Attention over a prompt shared by its group and a completion's own tokens.

Keys and values are stored [rows, K, S, H]: batch axes first, so that no decode step
transposes the cache.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from job_jax.mesh import constrain
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.chunks import in_chunks
from rlvr_jax.models.kernels import chosen, fused
from rlvr_jax.models.views import View

# Finite, so that a row without any visible key gives a uniform mix and not NaN.
_HIDDEN = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValues:
    """One layer's keys and values for some positions."""

    keys: Float[Array, " B K S H"]
    values: Float[Array, " B K S H"]

    @classmethod
    def of(cls, key_BSKH: jax.Array, value_BSKH: jax.Array) -> "KeyValues":
        """Returns projections as they are stored, laid out on the mesh."""

        def stored(x_BSKH: jax.Array) -> jax.Array:
            return constrain(x_BSKH.swapaxes(1, 2), "batch", "kv_heads", None, None)

        return cls(keys=stored(key_BSKH), values=stored(value_BSKH))


def rotate(x_BTNH: jax.Array, cos_BT1H: jax.Array, sin_BT1H: jax.Array) -> jax.Array:
    """Returns the heads turned by their position's angles."""
    wide_BTNH = x_BTNH.astype(jnp.float32)
    first, second = jnp.split(wide_BTNH, 2, axis=-1)
    turned_BTNH = jnp.concatenate([-second, first], axis=-1)
    return (wide_BTNH * cos_BT1H + turned_BTNH * sin_BT1H).astype(x_BTNH.dtype)


def attend(
    queries: Float[Array, " B T N H"],
    own: KeyValues,
    view: View,
    prefix: KeyValues | None = None,
    *,
    config: ModelConfig,
) -> Float[Array, " B T N H"]:
    """Returns softmax(q k / sqrt(H)) v over the shared prefix and the own positions.

    By a kernel where `kernels.chosen` says so, else plainly, `config.attention_chunk`
    queries at a time; arbitrary at padding.
    """
    T, width = queries.shape[1], config.attention_chunk
    kernel = chosen(config, window=view.window, length=T)
    if kernel != "plain" and view.window is not None:
        return fused(
            kernel,
            queries,
            (own.keys, own.values),
            None if prefix is None else (prefix.keys, prefix.values),
            view.true,
            window=view.window,
            config=config,
        )

    def mix(queries: jax.Array, view: View) -> jax.Array:
        return plain(queries, own, view, prefix, config=config)

    if 0 < width < T:
        return in_chunks(mix, queries, view, width=width)
    return mix(queries, view)


def plain(
    queries: Float[Array, " B T N H"],
    own: KeyValues,
    view: View,
    prefix: KeyValues | None = None,
    *,
    config: ModelConfig,
) -> Float[Array, " B T N H"]:
    """Returns the same from whole scores: the reference, and what runs on CPU.

    The prefix's [P, K, S, H] serve B = P G rows: its scores are one product of the
    group's queries against S keys for each prompt and head. Scores and softmax are
    float32.
    """
    B, T, N, H = queries.shape
    K = own.keys.shape[1]
    R = N // K
    # The R query heads of one key head stand one behind the other: Q = R T.
    query_BKQH = queries.reshape(B, T, K, R, H).transpose(0, 2, 3, 1, 4)
    query_BKQH = query_BKQH.reshape(B, K, R * T, H)
    own_mask_B1QS = jnp.tile(view.own_mask[:, None], (1, 1, R, 1))
    own_BKQS = _scores(query_BKQH, own.keys, own_mask_B1QS, config)
    if prefix is None or view.prefix_mask is None:
        mixed_BKQH = _mix(_softmax(own_BKQS, queries.dtype), own.values)
    else:
        P, _, S, _ = prefix.keys.shape
        mask_P1QS = view.prefix_mask[:, None]
        if mask_P1QS.shape[2] > 1:
            mask_P1QS = jnp.tile(mask_P1QS, (1, 1, B // P * R, 1))
        prefix_PKQS = _scores(_by_prompt(query_BKQH, P), prefix.keys, mask_P1QS, config)
        scores_BKQS = jnp.concatenate([_by_row(prefix_PKQS, B), own_BKQS], axis=-1)
        weights_BKQS = _softmax(scores_BKQS, queries.dtype)
        shared_PKQH = _mix(_by_prompt(weights_BKQS[..., :S], P), prefix.values)
        mixed_BKQH = _mix(weights_BKQS[..., S:], own.values) + _by_row(shared_PKQH, B)
    mixed_BTKRH = mixed_BKQH.reshape(B, K, R, T, H).transpose(0, 3, 1, 2, 4)
    return mixed_BTKRH.reshape(B, T, N, H).astype(queries.dtype)


def capped(x: jax.Array, cap: float) -> jax.Array:
    """Returns cap tanh(x / cap), which is x near 0 and within (-cap, cap); 0: x."""
    return cap * jnp.tanh(x / cap) if cap else x


def _scores(
    query_BKQH: jax.Array, keys_BKSH: jax.Array, mask: jax.Array, config: ModelConfig
) -> jax.Array:
    scores_BKQS = _product("bkqh,bksh->bkqs", query_BKQH, keys_BKSH)
    scale = (config.score_width or query_BKQH.shape[-1]) ** -0.5
    return jnp.where(mask, capped(scores_BKQS * scale, config.score_cap), _HIDDEN)


def _softmax(scores_BKQS: jax.Array, dtype: jnp.dtype) -> jax.Array:
    return jax.nn.softmax(scores_BKQS).astype(dtype)


def _mix(weights_BKQS: jax.Array, values_BKSH: jax.Array) -> jax.Array:
    return _product("bkqs,bksh->bkqh", weights_BKQS, values_BKSH)


def _product(formula: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(formula, a, b, preferred_element_type=jnp.float32)


def _by_prompt(x_BKQX: jax.Array, P: int) -> jax.Array:
    """Returns the queries of a group side by side: [P, K, G Q, X]."""
    B, K, Q, X = x_BKQX.shape
    x_PKGQX = x_BKQX.reshape(P, B // P, K, Q, X).swapaxes(1, 2)
    return x_PKGQX.reshape(P, K, B // P * Q, X)


def _by_row(x_PKQX: jax.Array, B: int) -> jax.Array:
    """Returns each completion's queries by themselves again: [B, K, Q, X]."""
    P, K, Q, X = x_PKQX.shape
    G = B // P
    return x_PKQX.reshape(P, K, G, Q // G, X).swapaxes(1, 2).reshape(B, K, Q // G, X)
