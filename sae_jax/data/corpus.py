"""Documents of activation shards, encoded in blocks for evaluation and export."""

import dataclasses
import os
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig
from sae_jax.data.shards import ActivationShards
from sae_jax.data.tokens import (
    Documents,
    filter_tokens,
    iter_documents,
    mark_duplicates,
)
from sae_jax.data.views import JoinedShards, open_activations
from sae_jax.sae import TSAE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """Documents on disk with a mask of the tokens that count. Made by `open_corpus`.

    `skipped` counts the tokens left out, by reason.
    """

    shards: ActivationShards | JoinedShards
    mask: Bool[np.ndarray, " N"]
    document_ids: Int[np.ndarray, " M"]
    skipped: dict[str, int]

    def blocks(self) -> Iterator[Documents]:
        """Yields the documents in blocks that all have the same shape."""
        return iter_documents(self.shards, self.mask, self.document_ids)

    def encode_blocks(
        self, tsae: TSAE
    ) -> Iterator[tuple[Documents, Float[Array, "S T Z"]]]:
        """Yields the blocks with their latents, which are 0 for tokens left out."""
        for block in self.blocks():
            yield block, _encode(tsae, block.x, block.mask)

    def block_column(self, name: str, block: Documents) -> np.ndarray:
        """Returns a column of the data for a block's tokens [S, T], -1 for padding."""
        column = self.shards.column(name)
        return np.where(block.token_index >= 0, column[block.token_index], -1)

    def block_problems(self, block: Documents) -> Int[np.ndarray, " S"]:
        """Returns the problem that each row of a block answers, -1 for padding."""
        return self.block_column("problem", block)[:, 0]

    def block_document_ids(self, block: Documents) -> Int[np.ndarray, " S"]:
        """Returns the document id of each row of a block, -1 for padding."""
        return self.block_column("sequence", block)[:, 0]


def open_corpus(
    path: str | os.PathLike[str],
    tsae: TSAE | None,
    *,
    beside: Sequence[str | os.PathLike[str]] = (),
    roles: Sequence[str] = (),
    max_documents: int | None = None,
    drop_duplicates: bool = False,
) -> Corpus:
    """Returns the first `max_documents` documents of the activations at `path`.

    `beside` adds the same texts at other checkpoints, as a crosscoder reads them.
    Tokens of `roles` count (by default all), except tokens that training also leaves
    out: special tokens, norms beyond the default ratio to the median and, with
    `drop_duplicates`, documents that copy an earlier one. Raises ConfigError if the
    width differs from the width of `tsae` (None accepts any), or if no token is left.
    """
    shards = open_activations(path, beside)
    if tsae is not None and shards.width != tsae.width:
        raise ConfigError(
            f"{path}: activations of width {shards.width}, but the autoencoder reads "
            f"width {tsae.width}; they are of different models or layers, or it is a "
            "crosscoder, which also needs the other checkpoints' (--beside)"
        )
    present = [
        name
        for i, name in enumerate(shards.role_names)
        if (shards.column("role") == i).any()
    ]
    config = PairsConfig(roles=tuple(roles or present))
    usable, skipped = filter_tokens(shards, config)
    if drop_duplicates:
        duplicate = usable & mark_duplicates(shards)
        usable, skipped = (
            usable & ~duplicate,
            skipped | {"duplicate": int(duplicate.sum())},
        )
    numbers = np.unique(shards.column("sequence"))[:max_documents]
    if not usable[np.isin(shards.column("sequence"), numbers)].any():
        raise ConfigError(f"{path}: no token is left; skipped {skipped}")
    return Corpus(shards=shards, mask=usable, document_ids=numbers, skipped=skipped)


@jax.jit
def _encode(
    tsae: TSAE, x: Float[Array, "S T D"], mask: Bool[Array, "S T"]
) -> Float[Array, "S T Z"]:
    mask_ST1 = mask[:, :, None]
    return jnp.where(
        mask_ST1, tsae.encode(jnp.where(mask_ST1, x, jnp.zeros_like(x))), 0.0
    )
