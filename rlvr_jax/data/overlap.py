r"""Finds problems that also occur among evaluation problems, by shared words. No JAX.

Two texts overlap if they share `n` words in a row (13 by default, as in
https://arxiv.org/abs/2005.14165); shorter texts are compared whole. Words are runs of
letters and digits. Case, punctuation, operators and LaTeX's layout commands (`\left`,
`\text`) do not count, and `\dfrac` equals `\frac`.
"""

import collections
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

_LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle|limits|quad|qquad|text|textbf|mathrm|mbox)"
    r"(?![A-Za-z])|\\[,;:! ]"
)
_FRACTION = re.compile(r"\\[dt]frac(?![A-Za-z])")
_WORD = re.compile(r"[^\W_]+")
# Operators and signs: they change a short text's meaning even if no word differs. A
# hyphen between letters and an exclamation mark after one are punctuation.
_MARK = re.compile(
    r"[+*/=<>^|\u00b1\u00d7\u00f7\u2190-\u22ff]"
    r"|(?<![^\W\d_])[-\u2212]|[-\u2212](?![^\W\d_])|(?<=[\d)}])!"
)


class ProblemOverlap(NamedTuple):
    """An evaluation problem that a text overlaps with, and the words they share."""

    set: str
    problem: str
    words: str


def split_words(text: str) -> list[str]:
    """Returns the words of a text, as overlaps count them.

    >>> split_words("Find $x^2$, where x = 1,000!")
    ['find', 'x', '2', 'where', 'x', '1', '000']
    """
    return _WORD.findall(_normalize(text))


def whole_key(text: str) -> str:
    r"""Returns a key that is equal for two texts of the same problem.

    It has the words as above, and the operators and signs between them.

    >>> whole_key("Compute 2+2.") == whole_key("compute $2 + 2$")
    True
    >>> whole_key("Compute 2+2.") == whole_key("Compute 2-2.")
    False
    """
    normal = _normalize(text)
    return " ".join(
        found[0]
        for found in sorted(
            (*_WORD.finditer(normal), *_MARK.finditer(normal)), key=re.Match.start
        )
    )


def _normalize(text: str) -> str:
    text = unicodedata.normalize("NFKC", _FRACTION.sub(r"\\frac", text))
    return _LAYOUT.sub(" ", text).casefold()


class OverlapIndex:
    """Finds the evaluation problems that a text overlaps with.

    Args:
        sets: name of each evaluation set -> its problems' ids and texts.
        n: shared words in a row that make an overlap.

    Example:
        >>> index = OverlapIndex({"quiz": [("q1", "How many are five and six?")]}, n=4)
        >>> index.find("Say how many are FIVE, and then stop.")
        [ProblemOverlap(set='quiz', problem='q1', words='how many are five')]
    """

    def __init__(self, sets: Mapping[str, Sequence[tuple[str, str]]], *, n: int = 13):
        self.n = n
        self._grams: dict[str, dict[tuple[str, str], None]] = {}
        self._whole: dict[str, dict[tuple[str, str], None]] = {}
        for name, problems in sets.items():
            for problem, text in problems:
                self._whole.setdefault(whole_key(text), {})[name, problem] = None
                for gram in self._grams_of(text):
                    self._grams.setdefault(gram, {})[name, problem] = None

    def find(
        self, text: str, *, phrases: Collection[str] = frozenset()
    ) -> list[ProblemOverlap]:
        """Returns each evaluation problem that overlaps, with the first shared words.

        Runs of words in `phrases` do not count; two equal texts always overlap.
        """
        key = whole_key(text)
        found: dict[tuple[str, str], str] = {}
        for gram in self.shared_runs(text):
            for owner in self._grams[gram] if gram not in phrases else ():
                found.setdefault(owner, gram)
        for owner in self._whole.get(key, ()):
            found.setdefault(owner, key)
        return [ProblemOverlap(*owner, words) for owner, words in found.items()]

    def shared_runs(self, text: str) -> list[str]:
        """Returns the runs of `n` words that an evaluation problem also has."""
        return [gram for gram in self._grams_of(text) if gram in self._grams]

    def find_phrases(self, texts: Iterable[str], *, max_shared: int) -> set[str]:
        """Returns the shared runs that more than `max_shared` of the texts have (ours).

        For example, "where m and n are relatively prime positive integers find m n"
        ends hundreds of competition problems and is not evidence of a copy.
        """
        counts = collections.Counter(
            gram for text in texts for gram in {*self.shared_runs(text)}
        )
        return {gram for gram, count in counts.items() if count > max_shared}

    def _grams_of(self, text: str) -> Iterator[str]:
        words = split_words(text)
        for start in range(len(words) - self.n + 1):
            yield " ".join(words[start : start + self.n])
