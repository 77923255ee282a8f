r"""Reads the contents of \boxed{...}: the last box, or a list of the last boxes.

"\boxed{2} and \boxed{3}" states one answer in two boxes, 2 and 3. Boxes form a list if
only list joints are between them: a comma, a semicolon, "and" or "or", perhaps after a
few words ("papers and") or before a name ("y ="). If anything else is between them
("no, rather", a full stop, an empty line), only the last box counts.
"""

import re
from typing import NamedTuple

# Some models and files escape the backslash twice: \\\\boxed{5}.
_TOKEN = re.compile(r"\\{1,2}boxed\s*\{|\\.|[{}]", re.DOTALL)
_SPACING = re.compile(r"\$|\\[()\[\],;:! ]|\\q?quad(?![A-Za-z])|~")
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z]\w*(?:_\{\w+\})?(?:\([A-Za-z]\))?\s*=)\s*$", re.ASCII)
_JOINT = re.compile(
    r"((?:\s+(?:[A-Za-z]+|\([a-z]\))){0,3})\s*(?:[,;]|,?\s+(?:and|or))\s*"
)
# Words that revoke the previous box, or make a statement about it.
_NO_LIST_WORDS = {"but", "incorrect", "instead", "is", "no", "not", "rather", "so"}
_NO_LIST_WORDS |= {"then", "thus", "hence", "was", "were", "are", "wrong", "false"}


class _Box(NamedTuple):
    """A box with its contents and its position, from `start` to `end`."""

    start: int
    contents: str
    end: int


def extract_boxed(text: str) -> str | None:
    r"""Returns the contents of the last complete box, or of the list that it ends.

    A value that is boxed twice counts once. If each box of a list has a name before it,
    "x = \boxed{1}, y = \boxed{2}", the names are kept. None if no box is complete.
    """
    boxes = _find_boxes(text)
    if not boxes:
        return None
    first = len(boxes) - 1
    while first > 0 and _joins(text[boxes[first - 1].end : boxes[first].start]):
        first -= 1
    values = [box.contents.strip() for box in boxes[first:]]
    if len(set(values)) == 1:
        return values[0]
    names = [
        _NAME.search(_strip_spacing(text[max(0, box.start - 40) : box.start]))
        for box in boxes[first:]
    ]
    if all(names):
        values = [f"{n[1]} {v}" for n, v in zip(names, values, strict=True) if n]
    return ", ".join(dict.fromkeys(values))


def _find_boxes(text: str) -> list[_Box]:
    """Returns the complete boxes that contain no other complete box, in order."""
    opened: list[tuple[int, int] | None] = []  # None: a brace that opens no box
    boxes: list[_Box] = []
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            opened.append(None)
        elif "boxed" in token[0]:
            opened.append((token.start(), token.end()))
        elif token[0] == "}" and opened and (box := opened.pop()):
            start, inside = box
            if not boxes or boxes[-1].start < start:
                boxes.append(_Box(start, text[inside : token.start()], token.end()))
    return boxes


def _joins(between: str) -> bool:
    """Returns whether the text between two boxes joins them into one list."""
    if not between:
        return True
    if len(between) > 80 or re.search(r"\n\s*\n", between):
        return False
    joint = _JOINT.fullmatch(_NAME.sub("", _strip_spacing(between)))
    return joint is not None and not _NO_LIST_WORDS & set(joint[1].lower().split())


def _strip_spacing(text: str) -> str:
    r"""Returns a text without math delimiters and spacing, and without \text{...}."""
    return _SPACING.sub(" ", _TEXT.sub(r" \1 ", text))
