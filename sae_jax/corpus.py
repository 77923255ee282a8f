"""Activations of whole documents, encoded: what evaluation and export walk over."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig
from sae_jax.sae import TSAE
from sae_jax.shards import ActivationShards
from sae_jax.tokens import Documents, documents, usable_tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """Documents on disk and which of their tokens count. Written by `open_corpus`.

    `numbers` are the documents, in order; `skipped` counts tokens left out, by reason.
    """

    shards: ActivationShards
    usable: Bool[np.ndarray, " N"]
    numbers: Int[np.ndarray, " M"]
    skipped: dict[str, int]

    def blocks(self) -> Iterator[Documents]:
        """Returns the documents, a few at a time, in arrays of one shape."""
        return documents(self.shards, self.usable, self.numbers)

    def encoded(self, tsae: TSAE) -> Iterator[tuple[Documents, Float[Array, "S T Z"]]]:
        """Returns the documents with their latents, 0 where a token does not count."""
        for block in self.blocks():
            yield block, _encode(tsae, block.x, block.counted)

    def values(self, name: str, block: Documents) -> np.ndarray[Any, Any]:
        """Returns a column of the data at the block's tokens [S T]; -1 at padding."""
        column = self.shards.column(name)
        return np.where(block.token >= 0, column[block.token], -1)

    def rows(self, block: Documents) -> Int[np.ndarray, " S"]:
        """Returns the number of each row's document, -1 for a row of padding."""
        return self.values("sequence", block)[:, 0]


def open_corpus(
    path: str | os.PathLike[str],
    tsae: TSAE,
    *,
    roles: Sequence[str] = (),
    limit: int | None = None,
) -> Corpus:
    """Returns the first `limit` documents of the activations at `path`.

    Tokens of `roles` count (all by default), less those that training leaves out too:
    special ones, and norms beyond the default ratio to the median. Raises ConfigError
    where the width is not the dictionary's or no token is left.
    """
    shards = ActivationShards(path)
    if shards.width != tsae.width:
        raise ConfigError(
            f"{path}: activations of width {shards.width}, but the autoencoder reads "
            f"width {tsae.width}; they are of different models or layers"
        )
    present = [
        name
        for i, name in enumerate(shards.role_names)
        if (shards.column("role") == i).any()
    ]
    config = PairsConfig(roles=tuple(roles or present))
    usable, skipped = usable_tokens(shards, config)
    numbers = np.unique(shards.column("sequence"))[:limit]
    if not usable[np.isin(shards.column("sequence"), numbers)].any():
        raise ConfigError(f"{path}: no token is left; skipped {skipped}")
    return Corpus(shards=shards, usable=usable, numbers=numbers, skipped=skipped)


@jax.jit
def _encode(
    tsae: TSAE, x: Float[Array, "S T D"], counted: Bool[Array, "S T"]
) -> Float[Array, "S T Z"]:
    kept = counted[:, :, None]
    return jnp.where(kept, tsae.encode(jnp.where(kept, x, jnp.zeros_like(x))), 0.0)
