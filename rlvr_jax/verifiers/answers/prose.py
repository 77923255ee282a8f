r"""Finds golds that are sentences: they equal themselves as text, but no other answer.

A mathematics verifier treats equal texts as equal answers, so "even" and "(A)" can be
golds. "twelve apples because 3 * 4 = 12" also equals itself, but no policy will ever
write it.
"""

import re

_MAX_WORDS = 5  # in a row; "the set of all integers" is an answer
_EXPLAINING = {"because", "since", "therefore", "thus", "hence"}
_NUMBER_WORDS = {"zero", "one", "two", "three", "four", "five", "six", "seven"}
_NUMBER_WORDS |= {"eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen"}
_NUMBER_WORDS |= {"fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"}
_NUMBER_WORDS |= {"thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}
_NUMBER_WORDS |= {"hundred", "thousand", "million", "billion"}
_JOINING = {"and", "or"}
_FORMULA = re.compile(
    r"\$[^$]*\$|\\\(.*?\\\)|\\\[.*?\\\]|\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+",
    re.DOTALL,
)
_LIST_JOINT = re.compile(r"[,;\n]")
_WORD = re.compile(r"(?<![A-Za-z_^])[^\W\d_]{2,}")


def describe_prose(gold: str) -> str:
    r"""Returns why no answer would equal a gold that is a sentence, "" for other golds.

    >>> describe_prose("twelve apples because 3 * 4 = 12")
    "gold explains its answer ('because'); give the answer alone"
    >>> describe_prose(r"\text{Alice, Bob and Carol}")
    ''
    """
    parts = [
        [word.lower() for word in _WORD.findall(part)]
        for part in _LIST_JOINT.split(_FORMULA.sub(" ", gold))
    ]
    words = [word for part in parts for word in part]
    said = next((word for word in words if word in _EXPLAINING), None)
    if said is not None and len(words) > 1:
        return f"gold explains its answer ({said!r}); give the answer alone"
    longest = max((len([w for w in p if w not in _JOINING]) for p in parts), default=0)
    if longest > _MAX_WORDS:
        return f"gold is a sentence ({longest} words in a row); give the answer alone"
    is_text = not re.search(r"[0-9]", gold) and bool(set(words) & _NUMBER_WORDS)
    if is_text and set(words) <= _NUMBER_WORDS | _JOINING:
        return "gold is a number in words, which no digits equal; write it in digits"
    return ""
