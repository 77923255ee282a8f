"""The temporal sparse autoencoder as inference sees it: a JumpReLU dictionary.

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

NO_THRESHOLD = -1.0  # of a dictionary whose threshold was not found yet: plain ReLU


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TSAE:
    """A dictionary over activations of width D with Z latents in nested groups.

    Whoever is handed a TSAE feeds it raw activations: a normalisation used in training
    was folded by `rescaled`. All arrays are float32; under a leading clone axis C, use
    `clone`. Group sizes are kept, never recomputed. `top_k` is for dictionaries of
    other libraries that keep each token's k largest latents and have no threshold.
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
    ) -> Self:
        """Returns a dictionary of random unit rows, the encoder their transpose.

        `key` is a JAX key or a seed. No `group_sizes` is one group of all latents.
        Raises ValueError where the group sizes do not add up to the latents.
        """
        group_sizes = tuple(group_sizes) or (latents,)
        if sum(group_sizes) != latents or min(group_sizes) < 1:
            raise ValueError(
                f"group_sizes={group_sizes} do not add up to latents={latents}; make "
                "them positive and add up"
            )
        if isinstance(key, int | np.integer):
            key = jax.random.key(int(key))
        decoder = unit_rows(jax.random.normal(key, (latents, width), jnp.float32))
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
        """Returns D."""
        return self.encoder.shape[-2]

    @property
    def latents(self) -> int:
        """Returns Z."""
        return self.encoder.shape[-1]

    @property
    def high(self) -> int:
        """Returns the size of the high-level group, the first columns of f."""
        return self.group_sizes[0]

    def preactivations(self, x: Float[Array, "*B D"]) -> Float[Array, "*B Z"]:
        """Returns (x - decoder_bias) encoder + encoder_bias, in float32.

        Raises ValueError where x is not D wide.
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
        return (x.astype(jnp.float32) - bias) @ self.encoder + encoder_bias

    def encode(self, x: Float[Array, "*B D"]) -> Float[Array, "*B Z"]:
        """Returns the latents of raw activations, sparse by threshold (or by top k)."""
        pre = self.preactivations(x)
        threshold = jnp.expand_dims(self.threshold, tuple(range(pre.ndim - 1)))
        f = jnp.where(pre > threshold, jax.nn.relu(pre), 0.0)
        if self.top_k is None:
            return f
        least = jax.lax.top_k(f, self.top_k)[0][..., -1:]
        return jnp.where(f >= least, f, 0.0)

    def decode(self, f: Float[Array, "*B Z"]) -> Float[Array, "*B D"]:
        """Returns f decoder + decoder_bias: raw activations again.

        Raises ValueError where f is not as wide as the decoder has rows.
        """
        f, rows = jnp.asarray(f), self.decoder.shape[-2]
        if f.ndim == 0 or f.shape[-1] != rows:
            raise ValueError(
                f"latents {f.shape} do not fit a decoder of {rows} rows; the last axis "
                "must hold one latent a row"
            )
        bias = jnp.expand_dims(self.decoder_bias, tuple(range(f.ndim - 1)))
        return f @ self.decoder + bias

    def rescaled(self, scale: Float[Array, ""] | float) -> Self:
        """Returns the dictionary that does to x what this one does to scale * x.

        Its latents and reconstructions are this one's divided by `scale`, so rows stay
        of unit length. A threshold that was not found yet (negative) stays as it is.
        """
        return dataclasses.replace(
            self,
            encoder_bias=self.encoder_bias / scale,
            decoder_bias=self.decoder_bias / scale,
            threshold=jnp.where(
                self.threshold >= 0, self.threshold / scale, self.threshold
            ),
        )

    def clone(self, index: int) -> Self:
        """Returns one of the dictionaries that lie along a leading clone axis."""
        return jax.tree.map(lambda leaf: leaf[index], self)

    def on_host(self) -> Self:
        """Returns the dictionary with NumPy arrays."""
        return jax.tree.map(np.asarray, jax.device_get(self))


def unit_rows(rows: Float[Array, " Z D"]) -> Float[Array, " Z D"]:
    """Returns the rows scaled to length 1."""
    norm = jnp.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / (norm + jnp.finfo(rows.dtype).eps)
