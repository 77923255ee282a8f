"""The interface of a tokenizer, and rows of ids padded to one length."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from job_jax.schema import ConfigError

Spans = tuple[tuple[int, int], ...]  # character ranges of a text: start and end

PAD_ID = 0  # fills rows beyond their lengths; masks come from lengths, not from ids


class UnknownWordError(ConfigError):
    """A text holds a word that is not in a closed vocabulary. The message names both.

    A tokenizer that cannot write every text raises it in `encode`.
    """


class Tokenizer(Protocol):
    """A tokenizer, as all stages use it. Any class with these members is one."""

    @property
    def vocab_size(self) -> int:
        """Returns the number of ids; the model's embedding may have more rows."""
        ...

    @property
    def eos_id(self) -> int:
        """Returns the id that is put after worked solutions in SFT."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Returns all ids that end a completion, `eos_id` first."""
        ...

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Returns the texts that also end a completion."""
        ...

    def encode(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of `text`, without special ids before or after.

        Within the `literal` ranges of characters, control tokens are not recognized:
        if data or a tool spells one out, it stays text.
        """
        ...

    def encode_prompt(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of a prompt: beginning-of-sequence, if used, then `text`."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, without control tokens."""
        ...

    def show(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids` with special tokens spelled out, for people."""
        ...


def pad_mask(rows: Sequence[Sequence[bool]], width: int) -> np.ndarray:
    """Returns the rows as [B, width], padded with False.

    Example:
        >>> pad_mask([[True], [False, True]], 3).tolist()
        [[True, False, False], [False, True, False]]
    """
    mask_BT = np.zeros((len(rows), width), bool)
    for target, row in zip(mask_BT, rows, strict=True):
        target[: len(row)] = row
    return mask_BT


def pad_rows(
    rows: Sequence[Sequence[int]], *, pad_multiple: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids [B, T], padded to a multiple of `pad_multiple`, and lengths [B].

    Raises ValueError on an empty row.

    Example:
        >>> tokens, lengths = pad_rows([[5, 6, 7], [8]], pad_multiple=2)
        >>> tokens.tolist(), lengths.tolist()
        ([[5, 6, 7, 0], [8, 0, 0, 0]], [3, 1])
    """
    lengths_B = np.array([len(row) for row in rows], np.int32)
    if lengths_B.size == 0 or lengths_B.min() == 0:
        raise ValueError("every row needs at least one token")
    width = -(-int(lengths_B.max()) // pad_multiple) * pad_multiple
    tokens_BT = np.full((len(rows), width), PAD_ID, np.int32)
    for target, row in zip(tokens_BT, rows, strict=True):
        target[: len(row)] = row
    return tokens_BT, lengths_B
