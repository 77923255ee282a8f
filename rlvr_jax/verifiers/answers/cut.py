r"""Decides whether the length limit may have cut an answer in two.

"The answer is 12" may be the beginning of 125. An answer only counts if the text ends
it: with a complete box or tag, a closed formula ($12$, \(12\)) or emphasis (**12**), a
line end, a full stop and a space, or more text ("12 apples"). A comma or "and" does not
end it, because a list may follow. A full stop at the very end does not end it either,
because it may be a decimal point.

The test continues the text: with one more letter, and with a cut word completed ("5
mill" to "5 million"). If the rule of `statements` then reads a different answer, the
answer touches the cut.
"""

import re

from rlvr_jax.verifiers.answers.calculations import VALUE_CHANGING_WORDS
from rlvr_jax.verifiers.answers.cleanup import strip_end_marks
from rlvr_jax.verifiers.answers.notation import normalize_notation
from rlvr_jax.verifiers.answers.statements import (
    extract_answer,
    extract_marked_answer,
    find_mark,
)

_CLOSED = re.compile(
    r"(?:(?<![\\$])\$[^$\n]{0,500}[^$\s\\]\$|\$\$.{1,500}?\$\$|\\\(.{1,500}?\\\)"
    r"|\\\[.{1,500}?\\\]|\*\*[^*\n]{1,500}\*\*|`[^`\n]{1,500}`)\Z",
    re.DOTALL,
)
_LIST_JOINT = re.compile(r"(?:\s*[,;]|\s+(?:and|or))\Z")
_ENDED = re.compile(r"\n\s*\Z|[.!?]\s+\Z")
_LAST_WORD = re.compile(r"(?<![^\W\d_])[A-Za-z]+\Z")
_LETTER = "x"  # any letter: a word with one more letter is still a word


def touches_end(text: str, answer_format: str = "any") -> bool:
    """Returns whether the answer in a text may continue after the end of the text.

    Always False for the formats "boxed" and "tagged", which only read complete marks.

    >>> touches_end("The answer is 12"), touches_end("The answer is 12 apples")
    (True, False)
    """
    if answer_format != "any":
        return False
    text = strip_end_marks(text)
    if find_mark(text) in ("tagged", "boxed") and (
        extract_marked_answer(text, "boxed") or extract_marked_answer(text, "tagged")
    ):
        return False
    body = text.rstrip()
    if not body or _ENDED.search(text) or _CLOSED.search(body):
        return False
    body = _LIST_JOINT.sub("", body)
    answer = _read(body)
    return bool(answer) and any(_read(longer) != answer for longer in _write_on(body))


def _write_on(text: str) -> list[str]:
    """Returns the text with one more letter, and with its last word completed."""
    word = _LAST_WORD.search(text)
    begun = word[0].lower() if word else ""
    longer = [w for w in sorted(VALUE_CHANGING_WORDS) if begun and w.startswith(begun)]
    return [text + _LETTER, *(text + w[len(begun) :] for w in longer)]


def _read(text: str) -> str:
    return extract_answer(normalize_notation(text))
