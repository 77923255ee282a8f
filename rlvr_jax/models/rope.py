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
    position / theta^(2i/H) radians: Hugging Face's layout (arXiv 2104.09864). If
    `rope_local_theta` is set, sliding layers use it instead and are never scaled. YaRN
    multiplies cosines and sines by `attention_factor`, and so every score by its
    square.
    """
    half = config.head_dim // 2
    local_theta = config.rope_local_theta if layer_type == "sliding" else 0.0
    theta = local_theta or config.rope_theta
    freq_I = theta ** -(jnp.arange(half, dtype=jnp.float32) / half)
    if not local_theta:
        freq_I = _scale_rope_freqs(freq_I, config)
    angle_BTI = positions[..., None].astype(jnp.float32) * freq_I[None, None]
    angle_BT1H = jnp.concatenate([angle_BTI, angle_BTI], axis=-1)[:, :, None, :]
    cos_BT1H, sin_BT1H = jnp.cos(angle_BT1H), jnp.sin(angle_BT1H)
    if config.rope_scaling != "yarn" or local_theta:
        return cos_BT1H, sin_BT1H
    factor = attention_factor(config)
    return factor * cos_BT1H, factor * sin_BT1H


def attention_factor(config: ModelConfig) -> float:
    """Returns YaRN's factor of cosines and sines: from the config, or by formula.

    The formula is 0.1 ln(rope_factor) + 1 (arXiv 2309.00071).
    """
    return config.rope_attention_factor or yarn_magnitude(config.rope_factor)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """Returns 0.1 weight ln(factor) + 1; 1 for a context that is not longer."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def look_up_rope(
    positions: Int[Array, " B T"],
    config: ModelConfig,
    layer_type: LayerType,
    *,
    num_positions: int,
) -> tuple[Float[Array, " B T 1 H"], Float[Array, " B T 1 H"]]:
    """Returns `rope_tables` of positions below `num_positions`, each computed once.

    Without the look-up, XLA on CPU recomputes cosine and sine wherever a layer rotates
    a head by them. It pays if there are more tokens than positions.
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

    linear   every frequency is divided by `rope_factor` (arXiv 2306.15595)
    llama3, yarn  slow pairs are divided by it, fast pairs do not change, and between
             the two the frequencies are mixed
    dynamic  none changes, because `max_seq_len` ends where the change would begin
    """
    if config.rope_scaling in ("none", "dynamic"):
        return freq_I
    scaled_I = freq_I / config.rope_factor
    if config.rope_scaling == "linear":
        return scaled_I
    if config.rope_scaling == "yarn":
        unscaled_share_I = _yarn_unscaled_share(config)
    else:
        unscaled_share_I = _llama3_unscaled_share(freq_I, config)
    return unscaled_share_I * freq_I + (1 - unscaled_share_I) * scaled_I


def _llama3_unscaled_share(freq_I: jax.Array, config: ModelConfig) -> jax.Array:
    """Returns how much of each pair's frequency is kept, 0 to 1.

    It is linear in the number of turns within the original context, from 0 at
    `rope_low_freq_factor` turns to 1 at `rope_high_freq_factor` (arXiv 2407.21783).
    """
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    turns_I = config.rope_original_max_position * freq_I / (2 * math.pi)
    return jnp.clip((turns_I - low) / (high - low), 0.0, 1.0)


def _yarn_unscaled_share(config: ModelConfig) -> jax.Array:
    """Returns how much of each pair's frequency is kept, 0 to 1.

    It falls from 1, at the pair that turns `rope_beta_fast` times within the original
    context, to 0, at the one that turns `rope_beta_slow` times (arXiv 2309.00071). In
    the paper it is linear in the number of turns. In its authors' code, in transformers
    and here it is linear in the number of the pair, because checkpoints were trained
    with that.
    """
    half = config.head_dim // 2

    def pair_of_turns(turns: float) -> float:
        ratio = config.rope_original_max_position / (2 * math.pi * turns)
        return half * math.log(ratio) / math.log(config.rope_theta)

    first, last = map(pair_of_turns, (config.rope_beta_fast, config.rope_beta_slow))
    if config.rope_truncate:
        first, last = math.floor(first), math.ceil(last)
    # H - 1, not H/2 - 1, is transformers' bound: the ramp may end beyond the last pair.
    first, last = max(first, 0), min(last, config.head_dim - 1)
    width = last - first or 0.001
    pair_I = jnp.arange(half, dtype=jnp.float32)
    return 1.0 - jnp.clip((pair_I - first) / width, 0.0, 1.0)
