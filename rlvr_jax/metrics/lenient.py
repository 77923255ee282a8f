"""Lenient accuracy: whether a completion states a numeric gold anywhere in its text.

Strict accuracy is the verifier's verdict: the answer must stand where an answer is
read. A gain in strict accuracy alone is a gain in form: the model already wrote the
answer, and now writes it where it counts. A gain in both is a gain in the task.

Lenient accuracy is an upper bound: a gold that the question names, that the text
rejects, or that has a minus in front counts as stated. It is measured where every gold
is a number, for other golds (a formula, a program) it would mean little.
"""

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")


def has_lenient_accuracy(golds: Iterable[str]) -> bool:
    """Returns whether every gold is a number."""
    return all(_NUMBER.fullmatch(gold) for gold in golds)


def states_gold(text: str, gold: str) -> bool:
    """Returns whether `gold` stands in the text as a number of its own.

    Example:
        >>> [states_gold(text, "12") for text in ("7 + 5 is 12, said Tom", "**12**")]
        [True, True]
        >>> [states_gold(text, "12") for text in ("120", "3.12", "12.5", "1,112")]
        [False, False, False, False]
    """
    return bool(re.search(rf"(?<![\w.,]){re.escape(gold)}(?!\w|[.,]\d)", text))
