"""What every stage needs of a tokenizer, and rows of ids."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

PAD_ID = 0  # fills rows beyond their length; masks come from lengths, never from ids


class Tokenizer(Protocol):
    """What every stage needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Returns the number of ids; a model may have more rows, never fewer."""
        ...

    @property
    def eos_id(self) -> int:
        """Returns the id that a worked solution ends with."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Returns all ids that end a completion, `eos_id` first."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Returns the texts that end a completion beside them."""
        ...

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, no special ones before or behind them."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """Returns the ids of a prompt: `text` behind what every text begins with."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, special tokens left out."""
        ...


def pad_rows(
    rows: Sequence[Sequence[int]], *, bucket: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids [B, T] padded on the right, T a multiple of `bucket`, and lengths.

    Raises ValueError on an empty row.
    """
    lengths_B = np.array([len(row) for row in rows], np.int32)
    if lengths_B.size == 0 or lengths_B.min() == 0:
        raise ValueError("every row needs at least one token")
    width = -(-int(lengths_B.max()) // bucket) * bucket
    tokens_BT = np.full((len(rows), width), PAD_ID, np.int32)
    for target, row in zip(tokens_BT, rows, strict=True):
        target[: len(row)] = row
    return tokens_BT, lengths_B
