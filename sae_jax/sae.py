"""The temporal sparse autoencoder at inference, which is a JumpReLU autoencoder.

    pre = (x - decoder_bias) encoder + encoder_bias
    f = relu(pre) where pre > threshold, else 0
    xhat = f decoder + decoder_bias

The first group of latents is the high-level one. References:
  T-SAE     https://arxiv.org/abs/2511.05541
  BatchTopK https://arxiv.org/abs/2412.06410
  JumpReLU  https://arxiv.org/abs/2407.14435
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

NO_THRESHOLD = -1.0  # before calibration: every positive latent is active


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TSAE:
    """A sparse autoencoder of activations of width D: Z latents in nested groups.

    It takes raw activations, because the normalization used in training is already
    folded into its arrays (`fold_scale`). All arrays are float32. Autoencoders trained
    together share one TSAE with a leading replica axis C; `replica` takes one out.
    `top_k` is for autoencoders of other libraries that keep each token's k largest
    latents and have no threshold.

    >>> tsae = TSAE.init(0, width=8, latents=32, group_sizes=(6, 26))
    >>> x = jax.random.normal(jax.random.key(1), (5, 8))
    >>> f = tsae.encode(x)
    >>> f.shape, tsae.decode(f).shape, tsae.num_high
    ((5, 32), (5, 8), 6)
    """

    encoder: Float[Array, " D Z"]
    encoder_bias: Float[Array, " Z"]
    decoder: Float[Array, " Z D"]
    decoder_bias: Float[Array, " D"]
    threshold: Float[Array, " Z"]
    group_sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    top_k: int | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def init(
        cls,
        key: Array | int,
        *,
        width: int,
        latents: int,
        group_sizes: tuple[int, ...] = (),
        decoder_bias: Float[Array, " D"] | None = None,
        num_checkpoints: int = 1,
    ) -> Self:
        """Returns an untrained autoencoder: random unit decoder rows, tied encoder.

        `key` is a JAX key or a seed. Without `group_sizes` there is one group of all.
        A crosscoder's rows start with the same direction for all checkpoints, so final
        differences come from the data. Raises ValueError if the group sizes do not add
        up to the latents.
        """
        group_sizes = tuple(group_sizes) or (latents,)
        if sum(group_sizes) != latents or min(group_sizes) < 1:
            raise ValueError(
                f"group_sizes={group_sizes} do not add up to latents={latents}; make "
                f"them positive, with the sum {latents}"
            )
        if isinstance(key, int | np.integer):
            key = jax.random.key(int(key))
        shape = latents, width // num_checkpoints
        direction = jax.random.normal(key, shape, jnp.float32)
        decoder = normalize_rows(jnp.tile(direction, (1, num_checkpoints)))
        if decoder_bias is None:
            decoder_bias = jnp.zeros(width, jnp.float32)
        return cls(
            encoder=decoder.T,
            encoder_bias=jnp.zeros(latents, jnp.float32),
            decoder=decoder,
            decoder_bias=decoder_bias,
            threshold=jnp.full(latents, NO_THRESHOLD, jnp.float32),
            group_sizes=group_sizes,
        )

    @property
    def width(self) -> int:
        """Returns D, the width of the activations it reads."""
        return self.encoder.shape[-2]

    @property
    def latents(self) -> int:
        """Returns Z, the number of latents."""
        return self.encoder.shape[-1]

    @property
    def num_high(self) -> int:
        """Returns the number of high-level latents, the first columns of f."""
        return self.group_sizes[0]

    def preactivations(self, x: Float[Array, "*B D"]) -> Float[Array, "*B Z"]:
        """Returns (x - decoder_bias) encoder + encoder_bias, in float32.

        Raises ValueError if the width of x is not D.
        """
        x = jnp.asarray(x)
        if x.shape[-1] != self.width:
            raise ValueError(
                f"activations of width {x.shape[-1]} do not fit a dictionary of width "
                f"{self.width}"
            )
        bias, encoder_bias = (
            jnp.expand_dims(b, tuple(range(x.ndim - 1)))
            for b in (self.decoder_bias, self.encoder_bias)
        )
        return matmul_float32(x.astype(jnp.float32) - bias, self.encoder) + encoder_bias

    def encode(self, x: Float[Array, "*B D"]) -> Float[Array, "*B Z"]:
        """Returns the latents of raw activations above the threshold (or the top k)."""
        pre = self.preactivations(x)
        threshold = jnp.expand_dims(self.threshold, tuple(range(pre.ndim - 1)))
        f = jnp.where(pre > threshold, jax.nn.relu(pre), 0.0)
        if self.top_k is None:
            return f
        min_kept = jax.lax.top_k(f, self.top_k)[0][..., -1:]
        return jnp.where(f >= min_kept, f, 0.0)

    def decode(self, f: Float[Array, "*B Z"]) -> Float[Array, "*B D"]:
        """Returns f decoder + decoder_bias, which are raw activations.

        Raises ValueError if the width of f is not the decoder's number of rows.
        """
        f, rows = jnp.asarray(f), self.decoder.shape[-2]
        if f.ndim == 0 or f.shape[-1] != rows:
            raise ValueError(
                f"latents {f.shape} do not fit a decoder of {rows} rows; the last axis "
                "must hold one latent for each row"
            )
        bias = jnp.expand_dims(self.decoder_bias, tuple(range(f.ndim - 1)))
        return matmul_float32(f, self.decoder) + bias

    def fold_scale(self, scale: Float[Array, ""] | float) -> Self:
        """Returns the autoencoder for x, given that this one is for scale * x.

        Its latents and reconstructions are this one's divided by `scale`, so decoder
        rows keep their length. A threshold that is not set yet (negative) is unchanged.

        >>> tsae = TSAE.init(0, width=2, latents=4)
        >>> x = jnp.array([[1.0, -2.0]])
        >>> folded = tsae.fold_scale(3.0).encode(x)
        >>> bool(jnp.allclose(folded, tsae.encode(3.0 * x) / 3.0))
        True
        """
        return dataclasses.replace(
            self,
            encoder_bias=self.encoder_bias / scale,
            decoder_bias=self.decoder_bias / scale,
            threshold=jnp.where(
                self.threshold >= 0, self.threshold / scale, self.threshold
            ),
        )

    def replica(self, index: int) -> Self:
        """Returns one of the autoencoders along the leading replica axis."""
        return jax.tree.map(lambda leaf: leaf[index], self)

    def to_host(self) -> Self:
        """Returns the same autoencoder with NumPy arrays."""
        return jax.tree.map(np.asarray, jax.device_get(self))


def matmul_float32(
    a: Float[Array, "*B D"], b: Float[Array, "*N D Z"]
) -> Float[Array, "*B Z"]:
    """Returns the product a b of float32 arrays, in full float32 on every device.

    By default a TPU would round the operands to bfloat16, and a GPU to TF32.
    """
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def normalize_rows(rows: Float[Array, " Z D"]) -> Float[Array, " Z D"]:
    """Returns the rows scaled to length 1.

    >>> rows = normalize_rows(jnp.array([[3.0, 4.0]]))
    >>> bool(jnp.allclose(rows, jnp.array([[0.6, 0.8]])))
    True
    """
    norm = jnp.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / (norm + jnp.finfo(rows.dtype).eps)
