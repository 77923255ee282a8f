"""Counts stiff phrases and long sentences in what people read.

A count is a smoke alarm: a page without hits can still be bad, and a hit can be right.
"""

import ast
import dataclasses
import io
import pathlib
import re
import tokenize
from collections.abc import Iterable, Iterator

MAX_WORDS = 35  # of a sentence

# A fluent writer has a plainer word for each of these.
_STIFF = re.compile(
    "|".join(
        rf"\b(?:{phrase})\b"
        for phrase in (
            "mend(?:s|ed|ing)?",  # fix
            "told|tells? of|telling of",  # reported
            "goes on|go on|gone on|going on",  # continue
            "stands?|standing|beside",  # is; next to
            "anew|nor|whoever|whatever",
            "hangs? on",  # depends on
            "(?:is|are) (?:none|no)",  # is not a
            "what (?:it|they|is|was|has|came|comes|becomes|makes|each|such)",
            "(?:that|those) of",  # repeat the noun
            "such (?:a|an|one|as are)",
            "of (?:its|their|your|one's|yours) own",
            "thereby|thereof|therein|wherein|whereof",
            "ha(?:s|ve) a say|none the wiser|at hand",
            "may be had|(?:to|is to|are to) be had|(?:is|are) to be",
            "asks? for|asked",  # needs, requests, trains on
            "less(?= (?:medium|hard|easy|none|the|that|random)\\b)",  # minus
            "in (?:its|their|the) place|in place of",  # instead of
        )
    ),
    re.IGNORECASE,
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|^ {4}.*?$", re.DOTALL | re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z*`(\[])|\n\n|\n(?=[-#|])")


@dataclasses.dataclass(frozen=True)
class Count:
    """What was found in some files."""

    words: int
    stiff: list[str]  # "path:line: phrase"
    long: list[str]  # "path: the sentence's beginning"

    @property
    def stiff_per_thousand(self) -> float:
        """Returns the stiff phrases in 1,000 words."""
        return 1000 * len(self.stiff) / max(1, self.words)


def count(paths: Iterable[pathlib.Path]) -> Count:
    """Returns the counts over all files, Markdown and Python."""
    words, stiff, long = 0, [], []
    for path in paths:
        is_python = path.suffix == ".py"
        parts = [*(_python_parts if is_python else _lines)(path.read_text())]
        for line, text in parts:
            words += len(text.split())
            stiff += [f"{path}:{line}: {hit[0]}" for hit in _STIFF.finditer(text)]
        whole = ("\n\n" if is_python else "\n").join(text for _, text in parts)
        sentences = _SENTENCE_END.split(whole)
        long += [
            f"{path}: {' '.join(sentence.split())[:60]}"
            for sentence in sentences
            if len(sentence.split()) > MAX_WORDS
        ]
    return Count(words, stiff, long)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of Markdown, those of code blank."""
    prose = _CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    yield from enumerate(prose.split("\n"), start=1)


def _python_parts(source: str) -> Iterator[tuple[int, str]]:
    """Yields docstrings, strings of several words, and comments."""
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and " " in node.value.strip():
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
