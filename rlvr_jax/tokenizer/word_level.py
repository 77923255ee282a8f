"""A closed vocabulary of words, such as the finite-field task's."""

import textwrap
from collections.abc import Sequence

from rlvr_jax.tokenizer.base import PAD_ID, Spans, UnknownWordError


class WordLevelTokenizer:
    """A closed vocabulary of words separated by single spaces.

    Example:
        >>> tokenizer = WordLevelTokenizer(["<pad>", "<eos>", "e0", "+"])
        >>> tokenizer.encode("e0 + e0")
        [2, 3, 2]
    """

    def __init__(self, words: Sequence[str], *, stop: tuple[str, ...] = ()):
        self._words = tuple(words)
        self._ids = {word: i for i, word in enumerate(self._words)}
        self.eos_id = self._ids["<eos>"]
        self.eos_ids = (self.eos_id,)
        self.stop_strings = stop
        self.vocab_size = len(self._words)

    @property
    def words(self) -> tuple[str, ...]:
        """Returns the words in the order of their ids."""
        return self._words

    def encode(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns one id per word; `literal` is ignored. Raises UnknownWordError."""
        words = text.split()
        if unknown := [word for word in words if word not in self._ids]:
            raise UnknownWordError(
                f"{text!r:.60} has the word {unknown[0]!r}, which is not among the "
                f"{self.vocab_size} words of this policy: "
                f"{textwrap.shorten(' '.join(self._words), 100, placeholder=' ...')}"
            )
        return [self._ids[word] for word in words]

    def encode_prompt(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of `text`; there is no beginning-of-sequence token."""
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words of `ids`, without padding and end-of-sequence."""
        skip = (PAD_ID, self.eos_id)
        return " ".join(self._words[i] for i in ids if i not in skip)

    def show(self, ids: Sequence[int]) -> str:
        """Returns the words of `ids`, padding and end-of-sequence included."""
        return " ".join(self._words[i] for i in ids)
