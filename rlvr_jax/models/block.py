"""One layer of the decoder, and its norm."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from job_jax.mesh import with_logical_constraint
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.attention import KeyValues, attend
from rlvr_jax.models.masks import AttentionContext
from rlvr_jax.models.parameters import (
    add_bias,
    constant_param,
    linear,
    normal_param,
)
from rlvr_jax.models.rope import apply_rope


class RMSNorm(nnx.Module):
    """Computes x / sqrt(mean(x^2) + eps) * scale, in float32 (arXiv 1910.07467).

    With `rms_norm_unit_offset` the factor is 1 + scale.
    """

    def __init__(self, size: int, axes: tuple[str, ...], *, config: ModelConfig):
        start = 0.0 if config.rms_norm_unit_offset else 1.0
        self.scale = constant_param(start, (size,), axes, config=config)
        self.config = config

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x, normalized along its last axis, in its own dtype."""
        x_float32 = x.astype(jnp.float32)
        mean_square = jnp.mean(x_float32 * x_float32, axis=-1, keepdims=True)
        normed = x_float32 * jax.lax.rsqrt(mean_square + self.config.norm_eps)
        scale_D = self.scale[...].astype(jnp.float32)
        if self.config.rms_norm_unit_offset:
            scale_D = 1.0 + scale_D
        return (normed * jnp.expand_dims(scale_D, range(x.ndim - 1))).astype(x.dtype)


class Block(nnx.Module):
    """One layer: grouped-query attention, then a gated MLP, each after a norm.

    Layers are created stacked (`init_stacked`), so the first logical axis of every
    parameter is the stack's.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, F, H = config.hidden_size, config.intermediate_size, config.head_dim
        N, K = config.num_heads, config.num_kv_heads

        def matrix(shape: tuple[int, ...], fan_in: int, *axes: str) -> nnx.Param:
            axes = ("layers", *axes)
            return normal_param(rngs, shape, axes, fan_in=fan_in, config=config)

        def bias(shape: tuple[int, ...], *axes: str) -> nnx.Param:
            return constant_param(0.0, shape, ("layers", *axes), config=config)

        norm = functools.partial(RMSNorm, D, ("layers", "embed"), config=config)
        head_norm = functools.partial(RMSNorm, H, ("layers", "head_dim"), config=config)
        self.config = config
        self.attention_norm = norm()
        self.query = matrix((D, N, H), D, "embed", "heads", "head_dim")
        self.key = matrix((D, K, H), D, "embed", "kv_heads", "head_dim")
        self.value = matrix((D, K, H), D, "embed", "kv_heads", "head_dim")
        self.out = matrix((N, H, D), N * H, "heads", "head_dim", "embed")
        self.mlp_norm = norm()
        self.gate = matrix((D, F), D, "embed", "mlp")
        self.up = matrix((D, F), D, "embed", "mlp")
        self.down = matrix((F, D), F, "mlp", "embed")
        if config.qkv_bias:
            self.query_bias = bias((N, H), "heads", "head_dim")
            self.key_bias = bias((K, H), "kv_heads", "head_dim")
            self.value_bias = bias((K, H), "kv_heads", "head_dim")
        if config.out_bias:
            self.out_bias = bias((D,), "embed")
        if config.mlp_bias:
            self.gate_bias = bias((F,), "mlp")
            self.up_bias = bias((F,), "mlp")
            self.down_bias = bias((D,), "embed")
        if config.qk_norm:
            self.query_norm = head_norm()
            self.key_norm = head_norm()
        if config.use_post_norms:
            self.attention_post_norm = norm()
            self.mlp_post_norm = norm()

    @classmethod
    def init_stacked(cls, config: ModelConfig, rngs: nnx.Rngs) -> "Block":
        """Returns one Block whose parameters have a leading L axis."""

        @nnx.split_rngs(splits=config.num_layers)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def create(rngs: nnx.Rngs) -> Block:
            return cls(config, rngs)

        return create(rngs)

    def project_qkv(
        self, x_BTD: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, KeyValues]:
        """Returns queries [B, T, N, H], and keys and values; RoPE is applied."""
        normed_BTD = self._gather_tokens(self.attention_norm(x_BTD))
        query_BTNH = self._split_heads(linear(normed_BTD, self.query))
        key_BTKH = self._split_heads(linear(normed_BTD, self.key))
        value_BTKH = self._split_heads(linear(normed_BTD, self.value))
        if self.config.qkv_bias:
            query_BTNH = add_bias(query_BTNH, self.query_bias[...])
            key_BTKH = add_bias(key_BTKH, self.key_bias[...])
            value_BTKH = add_bias(value_BTKH, self.value_bias[...])
        if self.config.qk_norm:
            query_BTNH = self.query_norm(query_BTNH)
            key_BTKH = self.key_norm(key_BTKH)
        rotated_BTKH = apply_rope(key_BTKH, *context.rope)
        return apply_rope(query_BTNH, *context.rope), KeyValues.from_projections(
            rotated_BTKH, value_BTKH
        )

    def attend(
        self,
        query_BTNH: jax.Array,
        key_values: KeyValues,
        context: AttentionContext,
        prefix: KeyValues | None = None,
    ) -> jax.Array:
        """Returns the attention output of each query head, [B, T, N, H]."""
        return attend(query_BTNH, key_values, context, prefix, config=self.config)

    def residual_and_mlp(self, x_BTD: jax.Array, mixed_BTNH: jax.Array) -> jax.Array:
        """Returns the residual stream plus the outputs of attention and of the MLP."""
        x_BTD = x_BTD + self.attention_output(mixed_BTNH)
        return with_logical_constraint(
            x_BTD + self.mlp_output(x_BTD), "batch", sequence_axis(self.config), None
        )

    def attention_output(self, mixed_BTNH: jax.Array) -> jax.Array:
        """Returns attention's term of the residual stream, [B, T, D]."""
        B, T, N, H = mixed_BTNH.shape
        added_BTD = linear(mixed_BTNH.reshape(B, T, N * H), self.out)
        if self.config.out_bias:
            added_BTD = add_bias(added_BTD, self.out_bias[...])
        if self.config.use_post_norms:
            added_BTD = self.attention_post_norm(added_BTD)
        return self._scatter_tokens(added_BTD)

    def mlp_output(self, x_BTD: jax.Array) -> jax.Array:
        """Returns the MLP's term of the residual stream, [B, T, D]."""
        normed_BTD = self._gather_tokens(self.mlp_norm(x_BTD))
        gate_BTF = linear(normed_BTD, self.gate)
        up_BTF = linear(normed_BTD, self.up)
        if self.config.mlp_bias:
            gate_BTF = add_bias(gate_BTF, self.gate_bias[...])
            up_BTF = add_bias(up_BTF, self.up_bias[...])
        added_BTD = linear(self._activation(gate_BTF) * up_BTF, self.down)
        if self.config.mlp_bias:
            added_BTD = add_bias(added_BTD, self.down_bias[...])
        if self.config.use_post_norms:
            added_BTD = self.mlp_post_norm(added_BTD)
        return added_BTD

    def _gather_tokens(self, x_BTD: jax.Array) -> jax.Array:
        """Returns x with all tokens on every device, as matrix products need it."""
        if not self.config.sequence_parallel:
            return x_BTD
        return with_logical_constraint(x_BTD, "batch", None, None)

    def _scatter_tokens(self, x_BTD: jax.Array) -> jax.Array:
        """Returns x with tokens split over the tensor axis if `sequence_parallel`."""
        if not self.config.sequence_parallel:
            return x_BTD
        return with_logical_constraint(x_BTD, "batch", "sequence", None)

    def _split_heads(self, x_BTX: jax.Array) -> jax.Array:
        B, T, X = x_BTX.shape
        H = self.config.head_dim
        return x_BTX.reshape(B, T, X // H, H)  # T may be 0

    def _activation(self, gate_BTF: jax.Array) -> jax.Array:
        if self.config.activation == "silu":
            return jax.nn.silu(gate_BTF)
        return jax.nn.gelu(gate_BTF, approximate=True)


def sequence_axis(config: ModelConfig) -> str | None:
    """Returns the logical axis of the tokens of the residual stream."""
    return "sequence" if config.sequence_parallel else None
