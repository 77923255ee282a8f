"""The finite-field world's own vocabulary."""

from collections.abc import Sequence

from rlvr_jax.tokenizer.base import PAD_ID


class SymbolTokenizer:
    """A closed vocabulary of words separated by single spaces."""

    def __init__(self, vocabulary: Sequence[str], *, stop: tuple[str, ...] = ()):
        self._words = tuple(vocabulary)
        self._ids = {word: i for i, word in enumerate(self._words)}
        self.eos_id = self._ids["<eos>"]
        self.eos_ids = (self.eos_id,)
        self.stop = stop
        self.vocab_size = len(self._words)

    def encode(self, text: str) -> list[int]:
        """Returns one id a word. Raises KeyError on a word of another world."""
        return [self._ids[word] for word in text.split()]

    def encode_prompt(self, text: str) -> list[int]:
        """Returns the ids of `text`: nothing stands before it."""
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words of `ids`, padding and end-of-sequence left out."""
        skip = (PAD_ID, self.eos_id)
        return " ".join(self._words[i] for i in ids if i not in skip)
