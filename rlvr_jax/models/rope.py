"""Rotary position embeddings (RoPE): tables of cosines and sines, and their use."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import ModelConfig
from rlvr_jax.config.model import LayerType


def token_positions(mask: Bool[Array, " B T"]) -> Int[Array, " B T"]:
    """Returns the position of each true token in its row, counted from 0.

    Padding gets the position of the last true token before it, or 0.
    """
    return jnp.maximum(jnp.cumsum(mask, axis=1, dtype=jnp.int32) - 1, 0)


def rope_tables(
    positions: Int[Array, " B T"], config: ModelConfig, layer_type: LayerType
) -> tuple[Float[Array, " B T 1 H"], Float[Array, " B T 1 H"]]:
    """Returns the cosine and the sine of every position's angles, for one layer type.

    Dimensions i and i + H/2 of a head form pair i, which turns by
    position / theta^(2i/H) radians: Hugging Face's layout (arXiv 2104.09864). Sliding
    layers have a theta of their own where `rope_local_theta` is set, and it is never
    scaled.
    """
    half = config.head_dim // 2
    local_theta = config.rope_local_theta if layer_type == "sliding" else 0.0
    theta = local_theta or config.rope_theta
    freq_I = theta ** -(jnp.arange(half, dtype=jnp.float32) / half)
    if not local_theta:
        freq_I = _scale_rope_freqs(freq_I, config)
    angle_BTI = positions[..., None].astype(jnp.float32) * freq_I[None, None]
    angle_BT1H = jnp.concatenate([angle_BTI, angle_BTI], axis=-1)[:, :, None, :]
    return jnp.cos(angle_BT1H), jnp.sin(angle_BT1H)


def look_up_rope(
    positions: Int[Array, " B T"],
    config: ModelConfig,
    layer_type: LayerType,
    *,
    num_positions: int,
) -> tuple[Float[Array, " B T 1 H"], Float[Array, " B T 1 H"]]:
    """Returns `rope_tables` of positions below `num_positions`, each computed once.

    Without the look-up, XLA on CPU computes a cosine and a sine anew wherever a layer
    rotates a head by them. It pays where there are more tokens than positions.
    """
    every_1C = jnp.arange(num_positions, dtype=jnp.int32)[None]
    cos_1C1H, sin_1C1H = rope_tables(every_1C, config, layer_type)

    def look_up(table_1C1H: jax.Array) -> jax.Array:
        return jnp.take(table_1C1H[0], positions, axis=0, mode="clip")

    return look_up(cos_1C1H), look_up(sin_1C1H)


def apply_rope(
    x_BTNH: jax.Array, cos_BT1H: jax.Array, sin_BT1H: jax.Array
) -> jax.Array:
    """Returns query or key heads rotated by the angles of their positions."""
    float32_BTNH = x_BTNH.astype(jnp.float32)
    first, second = jnp.split(float32_BTNH, 2, axis=-1)
    rotated_BTNH = jnp.concatenate([-second, first], axis=-1)
    return (float32_BTNH * cos_BT1H + rotated_BTNH * sin_BT1H).astype(x_BTNH.dtype)


def _scale_rope_freqs(freq_I: jax.Array, config: ModelConfig) -> jax.Array:
    """Returns frequencies, in radians a token, stretched for a longer context.

    linear: every frequency is divided by `rope_factor` (arXiv 2306.15595). llama3:
    pairs that turn at most `rope_low_freq_factor` times within the original context are
    divided by it, those that turn at least `rope_high_freq_factor` times are left as
    they are, and between the two the mix is linear in the number of turns
    (arXiv 2407.21783).
    """
    if config.rope_scaling == "none":
        return freq_I
    scaled_I = freq_I / config.rope_factor
    if config.rope_scaling == "linear":
        return scaled_I
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    turns_I = config.rope_original_max_position * freq_I / (2 * math.pi)
    unscaled_share_I = jnp.clip((turns_I - low) / (high - low), 0.0, 1.0)
    return unscaled_share_I * freq_I + (1 - unscaled_share_I) * scaled_I
