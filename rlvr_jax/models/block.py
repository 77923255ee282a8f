"""One layer of the decoder, and its norm."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from job_jax.mesh import constrain
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.attention import KeyValues, View, attend, rotate
from rlvr_jax.models.parameters import constant, normal
from rlvr_jax.models.product import times


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + eps) * scale, in float32 (arXiv 1910.07467).

    With `norm_from_zero` the factor is 1 + scale.
    """

    def __init__(self, width: int, axes: tuple[str, ...], *, config: ModelConfig):
        start = 0.0 if config.norm_from_zero else 1.0
        self.scale = constant(start, (width,), axes, config=config)
        self.config = config

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x, normalised along its last axis, in its own dtype."""
        wide = x.astype(jnp.float32)
        mean_square = jnp.mean(wide * wide, axis=-1, keepdims=True)
        scaled = wide * jax.lax.rsqrt(mean_square + self.config.norm_eps)
        scale_D = self.scale[...].astype(jnp.float32)
        if self.config.norm_from_zero:
            scale_D = 1.0 + scale_D
        return (scaled * jnp.expand_dims(scale_D, range(x.ndim - 1))).astype(x.dtype)


class Block(nnx.Module):
    """One layer: grouped-query attention, then a gated MLP, each behind a norm.

    Blocks are made L at a time (`stacked`), so the logical axes begin with the stack's.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, F, H = config.width, config.mlp_width, config.head_width
        N, K = config.heads, config.kv_heads

        def matrix(shape: tuple[int, ...], fan_in: int, *axes: str) -> nnx.Param:
            axes = ("layers", *axes)
            return normal(rngs, shape, axes, fan_in=fan_in, config=config)

        def bias(heads: int, axis: str) -> nnx.Param:
            axes = ("layers", axis, "head_width")
            return constant(0.0, (heads, H), axes, config=config)

        norm = functools.partial(RMSNorm, D, ("layers", "embed"), config=config)
        head_norm = functools.partial(
            RMSNorm, H, ("layers", "head_width"), config=config
        )
        self.config = config
        self.attention_norm = norm()
        self.query = matrix((D, N, H), D, "embed", "heads", "head_width")
        self.key = matrix((D, K, H), D, "embed", "kv_heads", "head_width")
        self.value = matrix((D, K, H), D, "embed", "kv_heads", "head_width")
        self.out = matrix((N, H, D), N * H, "heads", "head_width", "embed")
        self.mlp_norm = norm()
        self.gate = matrix((D, F), D, "embed", "mlp")
        self.up = matrix((D, F), D, "embed", "mlp")
        self.down = matrix((F, D), F, "mlp", "embed")
        if config.qkv_bias:
            self.query_bias = bias(N, "heads")
            self.key_bias = bias(K, "kv_heads")
            self.value_bias = bias(K, "kv_heads")
        if config.qk_norm:
            self.query_norm = head_norm()
            self.key_norm = head_norm()
        if config.post_norms:
            self.attention_post_norm = norm()
            self.mlp_post_norm = norm()

    @classmethod
    def stacked(cls, config: ModelConfig, rngs: nnx.Rngs) -> "Block":
        """Returns one Block whose parameters carry a leading L axis."""

        @nnx.split_rngs(splits=config.layers)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def create(rngs: nnx.Rngs) -> Block:
            return cls(config, rngs)

        return create(rngs)

    def heads(self, x_BTD: jax.Array, view: View) -> tuple[jax.Array, KeyValues]:
        """Returns turned queries [B, T, N, H], and the keys and values."""
        normed_BTD = self._gathered(self.attention_norm(x_BTD))
        query_BTNH = self._by_head(times(normed_BTD, self.query))
        key_BTKH = self._by_head(times(normed_BTD, self.key))
        value_BTKH = self._by_head(times(normed_BTD, self.value))
        if self.config.qkv_bias:
            query_BTNH = query_BTNH + self.query_bias[...][None, None]
            key_BTKH = key_BTKH + self.key_bias[...][None, None]
            value_BTKH = value_BTKH + self.value_bias[...][None, None]
        if self.config.qk_norm:
            query_BTNH = self.query_norm(query_BTNH)
            key_BTKH = self.key_norm(key_BTKH)
        turned_BTKH = rotate(key_BTKH, *view.rope)
        return rotate(query_BTNH, *view.rope), KeyValues.of(turned_BTKH, value_BTKH)

    def attend(
        self,
        query_BTNH: jax.Array,
        own: KeyValues,
        view: View,
        prefix: KeyValues | None = None,
    ) -> jax.Array:
        """Returns the values that each query head mixes, [B, T, N, H]."""
        return attend(query_BTNH, own, view, prefix, config=self.config)

    def finish(self, x_BTD: jax.Array, mixed_BTNH: jax.Array) -> jax.Array:
        """Returns the stream after attention's output and the MLP are added."""
        B, T, N, H = mixed_BTNH.shape
        mixed_BTX = mixed_BTNH.reshape(B, T, N * H)
        added_BTD = times(mixed_BTX, self.out)
        if self.config.post_norms:
            added_BTD = self.attention_post_norm(added_BTD)
        x_BTD = x_BTD + self._spread(added_BTD)
        normed_BTD = self._gathered(self.mlp_norm(x_BTD))
        gated_BTF = self._activated(times(normed_BTD, self.gate))
        added_BTD = times(gated_BTF * times(normed_BTD, self.up), self.down)
        if self.config.post_norms:
            added_BTD = self.mlp_post_norm(added_BTD)
        return constrain(x_BTD + added_BTD, "batch", stream_axis(self.config), None)

    def _gathered(self, x_BTD: jax.Array) -> jax.Array:
        """Returns x with all tokens on every device, for products with weights."""
        if not self.config.shard_sequence:
            return x_BTD
        return constrain(x_BTD, "batch", None, None)

    def _spread(self, x_BTD: jax.Array) -> jax.Array:
        """Returns x with its tokens split over the tensor axis, if the stream's are."""
        if not self.config.shard_sequence:
            return x_BTD
        return constrain(x_BTD, "batch", "sequence", None)

    def _by_head(self, x_BTX: jax.Array) -> jax.Array:
        B, T, X = x_BTX.shape
        H = self.config.head_width
        return x_BTX.reshape(B, T, X // H, H)  # T may be 0

    def _activated(self, gate_BTF: jax.Array) -> jax.Array:
        if self.config.activation == "silu":
            return jax.nn.silu(gate_BTF)
        return jax.nn.gelu(gate_BTF, approximate=True)


def stream_axis(config: ModelConfig) -> str | None:
    """Returns the logical axis of the residual stream's tokens."""
    return "sequence" if config.shard_sequence else None
