"""From documents to activations: windows of tokens, parts of many windows, batches.

A document longer than the context is split into several windows. Each window starts at
the model's first position, and the model sees no other window. A part holds enough
windows for a shard on disk, or for a training buffer. Within a part, windows are read
in order of length, so that a batch needs little padding. Everything depends only on the
text and the settings, so any part can be read again by itself, with the same result.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from job_jax.schema import ConfigError
from sae_jax.capture.reader import ModelReader

ROLES = ("text",)  # one role for all collected text, which has no prompt or response
_MIN_LENGTH = 16  # tokens to which the shortest rows are padded


@dataclasses.dataclass(frozen=True)
class Window:
    """One row for the model: the model's prefix and token ids, and the row's origin.

    `index` numbers the windows of a document from 0.
    """

    ids: Int[np.ndarray, " T"]
    document: int
    index: int


@dataclasses.dataclass(frozen=True)
class Part:
    """Windows that are read together, and then written or trained on together."""

    windows: tuple[Window, ...]

    @property
    def tokens(self) -> int:
        """Returns the tokens of all windows, N."""
        return sum(len(window.ids) for window in self.windows)

    def columns(
        self, reader: ModelReader, *, first_sequence: int = 0
    ) -> dict[str, np.ndarray]:
        """Returns the columns of the tokens, except their activations.

        Each window is a sequence, and each document a problem.
        """
        lengths = [len(window.ids) for window in self.windows]
        token_id_N = np.concatenate([window.ids for window in self.windows])
        sequence = np.arange(first_sequence, first_sequence + len(lengths))
        documents = [window.document for window in self.windows]
        return {
            "sequence": np.repeat(sequence, lengths),
            "problem": np.repeat(documents, lengths),
            "token_id": token_id_N,
            "role": np.zeros(len(token_id_N), np.uint8),
            "special": mark_special(token_id_N, reader),
        }


def mark_special(
    token_ids: Int[np.ndarray, " N"], reader: ModelReader
) -> Bool[np.ndarray, " N"]:
    """Returns which tokens are special, so not part of any text."""
    return np.isin(token_ids, sorted(reader.special_ids))


def iter_windows(
    documents: Iterable[tuple[int, str]], reader: ModelReader, *, context_size: int
) -> Iterator[Window]:
    """Yields the windows of these documents in order; no window spans two documents.

    A document has no window if the tokenizer makes no token of it.
    """
    prefix = list(reader.prefix_ids)
    step = context_size - len(prefix)
    for document, text in documents:
        ids = list(reader.encode(text))
        for index, start in enumerate(range(0, len(ids), step)):
            row = np.array(prefix + ids[start : start + step], np.int32)
            yield Window(row, document, index)


def iter_parts(windows: Iterable[Window], *, part_tokens: int) -> Iterator[Part]:
    """Yields parts of at least `part_tokens` tokens; the last one may have fewer."""
    held: list[Window] = []
    tokens = 0
    for window in windows:
        held.append(window)
        tokens += len(window.ids)
        if tokens >= part_tokens:
            yield Part(tuple(held))
            held, tokens = [], 0
    if held:
        yield Part(tuple(held))


def read_part(
    reader: ModelReader,
    part: Part,
    *,
    hook: str,
    layers: Sequence[int],
    batch_size: int,
    dtype: npt.DTypeLike,
    after_batch: Callable[[int], None] = lambda tokens: None,
) -> tuple[Float[np.ndarray, "N D"], ...]:
    """Returns the activations of a part's tokens at a hook, for each of the layers.

    The rows of a forward pass have similar lengths, the longest rows come first, and a
    pass always has `batch_size` rows. `after_batch` gets the number of the part's
    tokens read so far.
    """
    lengths_W = np.array([len(window.ids) for window in part.windows])
    starts_W = np.cumsum(lengths_W) - lengths_W
    values = tuple(np.empty((part.tokens, reader.width), dtype) for _ in layers)
    order_W = np.argsort(-lengths_W, kind="stable")
    done = 0
    for first in range(0, len(order_W), batch_size):
        rows = order_W[first : first + batch_size].tolist()
        ids = [part.windows[row].ids for row in rows]
        tokens_BT, lengths_B = _pad(ids, batch_size, reader.max_tokens)
        read = reader.read(tokens_BT, lengths_B, hook=hook, layers=layers)
        for target_ND, read_BTD in zip(values, read, strict=True):
            values_BTD = np.asarray(read_BTD)
            _check_shape(values_BTD, (*tokens_BT.shape, reader.width), reader)
            for b, row in enumerate(rows):
                start, length = starts_W[row], lengths_W[row]
                target_ND[start : start + length] = values_BTD[b, :length]
        done += int(lengths_W[rows].sum())
        after_batch(done)
    return values


def _pad(
    ids: Sequence[Int[np.ndarray, " T"]], batch_size: int, max_tokens: int
) -> tuple[Int[np.ndarray, "B T"], Int[np.ndarray, " B"]]:
    """Returns rows [B, T] and their lengths; missing rows hold one token.

    T is a power of two or the model's maximum, so that few programs are compiled.
    """
    longest = max(map(len, ids))
    width = max(_MIN_LENGTH, 1 << (longest - 1).bit_length())
    tokens_BT = np.zeros((batch_size, min(width, max_tokens)), np.int32)
    lengths_B = np.ones(batch_size, np.int32)
    for b, row in enumerate(ids):
        tokens_BT[b, : len(row)] = row
        lengths_B[b] = len(row)
    return tokens_BT, lengths_B


def _check_shape(
    values: np.ndarray, expected: tuple[int, ...], reader: ModelReader
) -> None:
    if values.shape != expected:
        raise ConfigError(
            f"the reader of {reader.name} returned activations of shape "
            f"{list(values.shape)}; it must return {list(expected)}"
        )
