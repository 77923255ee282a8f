"""Text to token ids and back."""

import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import sentencepiece

from job_jax.schema import ConfigError

PAD_ID = 0  # fills rows beyond their length; masks come from lengths, never from ids


class Tokenizer(Protocol):
    """What every stage needs of a tokenizer. Encoding adds no special tokens."""

    @property
    def vocab_size(self) -> int:
        """Returns V, the number of ids."""
        ...

    @property
    def eos_id(self) -> int:
        """Returns the id that ends a completion."""
        ...

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`."""
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


class SymbolTokenizer:
    """A closed vocabulary of words separated by single spaces."""

    def __init__(self, vocabulary: Sequence[str]):
        self._words = tuple(vocabulary)
        self._ids = {word: i for i, word in enumerate(self._words)}
        self.eos_id = self._ids["<eos>"]
        self.vocab_size = len(self._words)

    def encode(self, text: str) -> list[int]:
        """Returns one id a word. Raises KeyError on a word of another world."""
        return [self._ids[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words of `ids`, padding and end-of-sequence left out."""
        skip = (PAD_ID, self.eos_id)
        return " ".join(self._words[i] for i in ids if i not in skip)


# sentencepiece writes a space as this character, and would decode it as a space where
# it stands in the text itself: there it is spelled in bytes instead.
_SPACE_MARK = "\u2581"
_EOS_ID, _UNKNOWN_ID = 1, 2


class SentencePieceTokenizer:
    """Byte-pair pieces learnt from the data, single bytes where those do not reach.

    Any text comes back from its ids unchanged, line ends and runs of spaces included;
    every digit is a token of its own.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._pieces = sentencepiece.SentencePieceProcessor(
            model_proto=Path(path).read_bytes()
        )
        self.eos_id = _EOS_ID
        self.vocab_size: int = self._pieces.vocab_size()
        self._space_mark_ids = [
            self._pieces.piece_to_id(f"<0x{byte:02X}>") for byte in _SPACE_MARK.encode()
        ]

    @classmethod
    def train(
        cls, texts: Iterable[str], *, vocab_size: int, path: str | os.PathLike[str]
    ) -> "SentencePieceTokenizer":
        """Returns the tokenizer learnt from `texts` and written to `path`.

        One thread and the order given: the same texts give the same file. The 7,473
        worked solutions of GSM8K at 512 pieces take half a second, so all are used.
        Raises ConfigError where the texts do not have room for `vocab_size` pieces.
        """
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(
                    line for t in texts for line in t.split("\n") if line
                ),
                model_writer=model,
                vocab_size=vocab_size,
                model_type="bpe",
                byte_fallback=True,
                split_digits=True,
                user_defined_symbols=["\n"],
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                shuffle_input_sentence=False,
                max_sentence_length=1 << 20,  # bytes; a longer line would be left out
                num_threads=1,
                minloglevel=2,  # errors only
                pad_id=PAD_ID,
                eos_id=_EOS_ID,
                unk_id=_UNKNOWN_ID,
                bos_id=-1,
            )
        except RuntimeError as error:
            raise ConfigError(_mend(str(error), vocab_size)) from error
        unfinished = Path(f"{os.fspath(path)}.tmp")
        unfinished.write_bytes(model.getvalue())
        unfinished.replace(path)
        return cls(path)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`."""
        first, *rest = self._pieces.encode(text.split(_SPACE_MARK))
        for ids in rest:
            first += [*self._space_mark_ids, *ids]
        return first

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`; bytes that are no UTF-8 read as U+FFFD."""
        special = (PAD_ID, _EOS_ID, _UNKNOWN_ID)
        return self._pieces.decode([int(i) for i in ids if i not in special])


def _mend(error: str, vocab_size: int) -> str:
    """Returns what to do about sentencepiece's refusal to train."""
    asked = f"tokenizer.vocab_size={vocab_size}"
    if limit := re.search(r"set it to a value <= (\d+)", error):
        return (
            f"{asked} is more than the training texts have pieces for; "
            f"lower it to {limit[1]} or give more text"
        )
    if limit := re.search(r"\d+ vs (\d+)", error):
        return (
            f"{asked} is too small for the 256 bytes and the characters of the "
            f"training texts; raise it to at least {limit[1]}"
        )
    if "sentences_.empty()" in error:
        return "no text to train the tokenizer on; check task.train_path"
    return f"{asked}: sentencepiece could not train: {error}"
