"""Attention over a prompt shared by its group and a completion's own tokens.

Keys and values are stored [rows, K, S, H]: batch axes first, so that no decode step
transposes the cache.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

# Finite, so that a row without any visible key gives a uniform mix and not NaN.
_HIDDEN = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KeyValues:
    """One layer's keys and values for some positions."""

    keys: Float[Array, " B K S H"]
    values: Float[Array, " B K S H"]


def rope_tables(
    positions: Int[Array, " B T"], head_width: int, base: float
) -> tuple[Float[Array, " B T 1 H"], Float[Array, " B T 1 H"]]:
    """Returns cosine and sine of every position's angles, both halves alike.

    Pair i turns by position / base^(2i/H); pairs are (i, i + H/2), Hugging Face's
    layout. https://arxiv.org/abs/2104.09864
    """
    half = head_width // 2
    exponent_I = jnp.arange(half, dtype=jnp.float32) / half
    angle_BTI = positions[..., None].astype(jnp.float32) * base ** -exponent_I[None, None]
    angle_BT1H = jnp.concatenate([angle_BTI, angle_BTI], axis=-1)[:, :, None, :]
    return jnp.cos(angle_BT1H), jnp.sin(angle_BT1H)


def rotate(
    x_BTNH: jax.Array, cos_BT1H: jax.Array, sin_BT1H: jax.Array
) -> jax.Array:
    """Returns the heads turned by their position's angles."""
    first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    turned_BTNH = jnp.concatenate([-second, first], axis=-1)
    out_BTNH = x_BTNH.astype(jnp.float32) * cos_BT1H + turned_BTNH * sin_BT1H
    return out_BTNH.astype(x_BTNH.dtype)


def attend(
    queries: Float[Array, " B T N H"],
    own: KeyValues,
    *,
    own_mask: Bool[Array, " B T S"],
    prefix: KeyValues | None = None,
    prefix_mask: Bool[Array, " P S"] | None = None,
) -> Float[Array, " B T N H"]:
    """Returns softmax(q k / sqrt(H)) v over the shared prefix and the own positions.

    The prefix's [P, K, S, H] serve B = P G rows: its scores are one product of
    G T R queries against S keys for each prompt and head. `own_mask` may have
    a leading 1 for rows that see alike. Scores and softmax are float32.
    """
    B, T, N, H = queries.shape
    K = own.keys.shape[1]
    R = N // K
    q_BKRTH = queries.reshape(B, T, K, R, H).transpose(0, 2, 3, 1, 4) * jnp.asarray(
        H**-0.5, queries.dtype
    )
    scores_BKRTS = _product("bkqh,bksh->bkqs", q_BKRTH.reshape(B, K, R * T, H), own.keys)
    scores_BKRTS = scores_BKRTS.reshape(B, K, R, T, -1)
    scores_BKRTS = jnp.where(own_mask[:, None, None], scores_BKRTS, _HIDDEN)
    if prefix is None or prefix_mask is None:
        weights_BKRTS = jax.nn.softmax(scores_BKRTS).astype(queries.dtype)
        return _mix(weights_BKRTS, own.values, queries.dtype)

    P, _, S, _ = prefix.keys.shape
    G = B // P
    q_PKQH = q_BKRTH.reshape(P, G, K, R * T, H).swapaxes(1, 2).reshape(P, K, -1, H)
    prefix_PKQS = _product("pkqh,pksh->pkqs", q_PKQH, prefix.keys)
    prefix_PKQS = jnp.where(prefix_mask[:, None, None], prefix_PKQS, _HIDDEN)
    prefix_BKRTS = (
        prefix_PKQS.reshape(P, K, G, R * T, S).swapaxes(1, 2).reshape(B, K, R, T, S)
    )
    weights_BKRTS = jax.nn.softmax(
        jnp.concatenate([prefix_BKRTS, scores_BKRTS], axis=-1)
    ).astype(queries.dtype)
    mixed_BTNH = _mix(weights_BKRTS[..., S:], own.values, queries.dtype)
    shared_PKQS = (
        weights_BKRTS[..., :S].reshape(P, G, K, R * T, S).swapaxes(1, 2)
    ).reshape(P, K, -1, S)
    shared_PKQH = _product("pkqs,pksh->pkqh", shared_PKQS, prefix.values)
    shared_BKRTH = shared_PKQH.reshape(P, K, G, R, T, H).swapaxes(1, 2)
    shared_BTNH = shared_BKRTH.reshape(B, N, T, H).swapaxes(1, 2)
    return mixed_BTNH + shared_BTNH.astype(queries.dtype)


def _mix(weights_BKRTS: jax.Array, values_BKSH: jax.Array, dtype: jnp.dtype) -> jax.Array:
    B, K, R, T, S = weights_BKRTS.shape
    mixed_BKQH = _product(
        "bkqs,bksh->bkqh", weights_BKRTS.reshape(B, K, R * T, S), values_BKSH
    )
    return mixed_BKQH.reshape(B, K * R, T, -1).swapaxes(1, 2).astype(dtype)


def _product(formula: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(formula, a, b, preferred_element_type=jnp.float32)
