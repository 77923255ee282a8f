"""One layer of the decoder, and its norm."""

import jax
import jax.numpy as jnp
from flax import nnx

from job_jax.mesh import constrain
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.attention import KeyValues, rotate
from rlvr_jax.models.parameters import normal, ones


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + eps) * scale, in float32 (arXiv 1910.07467)."""

    def __init__(self, config: ModelConfig, axes: tuple[str, ...]):
        self.scale = ones((config.width,), axes, config=config)
        self.eps = config.norm_eps

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """Returns the normalised stream in x's dtype."""
        wide_BTD = x_BTD.astype(jnp.float32)
        mean_square_BT1 = jnp.mean(wide_BTD * wide_BTD, axis=-1, keepdims=True)
        scaled_BTD = wide_BTD * jax.lax.rsqrt(mean_square_BT1 + self.eps)
        scale_D = self.scale[...].astype(jnp.float32)
        return (scaled_BTD * scale_D[None, None]).astype(x_BTD.dtype)


class Block(nnx.Module):
    """One pre-norm layer: grouped-query attention, then SwiGLU.

    Blocks are made L at a time (`stacked`), so the logical axes begin with the stack's.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, F, H = config.width, config.mlp_width, config.head_width
        N, K = config.heads, config.kv_heads

        def matrix(shape: tuple[int, ...], fan_in: int, *axes: str) -> nnx.Param:
            axes = ("layers", *axes)
            return normal(rngs, shape, axes, fan_in=fan_in, config=config)

        self.attention_norm = RMSNorm(config, ("layers", "embed"))
        self.query = matrix((D, N, H), D, "embed", "heads", "head_width")
        self.key = matrix((D, K, H), D, "embed", "kv_heads", "head_width")
        self.value = matrix((D, K, H), D, "embed", "kv_heads", "head_width")
        self.out = matrix((N, H, D), N * H, "heads", "head_width", "embed")
        self.mlp_norm = RMSNorm(config, ("layers", "embed"))
        self.gate = matrix((D, F), D, "embed", "mlp")
        self.up = matrix((D, F), D, "embed", "mlp")
        self.down = matrix((F, D), F, "mlp", "embed")

    @classmethod
    def stacked(cls, config: ModelConfig, rngs: nnx.Rngs) -> "Block":
        """Returns one Block whose parameters carry a leading L axis."""

        @nnx.split_rngs(splits=config.layers)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def create(rngs: nnx.Rngs) -> Block:
            return cls(config, rngs)

        return create(rngs)

    def heads(
        self, x_BTD: jax.Array, rope: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, KeyValues]:
        """Returns turned queries [B, T, N, H], and the keys and values."""
        normed_BTD = self.attention_norm(x_BTD)
        query_BTNH = rotate(_project(normed_BTD, self.query[...]), *rope)
        key_BTKH = rotate(_project(normed_BTD, self.key[...]), *rope)
        value_BTKH = _project(normed_BTD, self.value[...])
        return query_BTNH, KeyValues.of(key_BTKH, value_BTKH)

    def finish(self, x_BTD: jax.Array, mixed_BTNH: jax.Array) -> jax.Array:
        """Returns the stream after attention's output and the MLP are added."""
        N, H, D = self.out.shape
        mixed_BTX = mixed_BTNH.reshape(*x_BTD.shape[:2], N * H)
        x_BTD = x_BTD + mixed_BTX @ self.out[...].reshape(N * H, D)
        normed_BTD = self.mlp_norm(x_BTD)
        gated_BTF = jax.nn.silu(normed_BTD @ self.gate[...])
        x_BTD = x_BTD + (gated_BTF * (normed_BTD @ self.up[...])) @ self.down[...]
        return constrain(x_BTD, "batch", None, None)


def _project(x_BTD: jax.Array, weight_DNH: jax.Array) -> jax.Array:
    D, N, H = weight_DNH.shape
    out_BTX = x_BTD @ weight_DNH.reshape(D, N * H)
    return out_BTX.reshape(*x_BTD.shape[:2], N, H)
