"""Lenient accuracy: whether a completion states a numeric gold anywhere in its text.

Strict accuracy is the verifier's verdict: the answer must be where the verifier reads
it. If only strict accuracy rises, the model improved its format: it already wrote the
answer, and now writes it where it counts. If both rise, it improved at the task.

Lenient accuracy is an upper bound: a correct completion counts as well, however it
writes the number. A gold also counts as stated if the text only quotes
it from the question, rejects it, or writes a minus in front of it. It is measured only
if every gold is a number, because for other golds (a formula, a program) it would mean
little.
"""

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")


def has_lenient_accuracy(golds: Iterable[str]) -> bool:
    """Returns whether every gold is a number."""
    return all(_NUMBER.fullmatch(gold) for gold in golds)


def is_lenient_success(verdict: str, text: str, golds: Iterable[str]) -> bool:
    """Returns whether a completion is correct, or states one of the golds."""
    return verdict == "correct" or any(states_gold(text, gold) for gold in golds)


def states_gold(text: str, gold: str) -> bool:
    """Returns whether the text contains `gold` as a number, not as part of one.

    Example:
        >>> [states_gold(text, "12") for text in ("7 + 5 is 12, said Tom", "**12**")]
        [True, True]
        >>> [states_gold(text, "12") for text in ("120", "3.12", "12.5", "1,112")]
        [False, False, False, False]
    """
    return bool(re.search(rf"(?<![\w.,]){re.escape(gold)}(?!\w|[.,]\d)", text))
