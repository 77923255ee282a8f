r"""Finds differences that the grammar does not see: units, bases, cases, set for pair.

The rules compare texts, so that they cost nothing.
"""

import re

from rlvr_jax.verifiers.answers.calculations import VALUE_CHANGING_WORDS
from rlvr_jax.verifiers.answers.numerals import SCALES, have_different_bases
from rlvr_jax.verifiers.answers.units import have_different_units

_TEXT = re.compile(
    r"\\(?:text|mathrm|mbox|operatorname|textbf|textit|mathbb|begin|end)\s*\{[^{}]*\}"
    r"|\\[A-Za-z]+|\d\s+[A-Za-z]\s*$|_\s*(?:\{[^{}]*\}|\w)"
)
_LETTERS = re.compile(r"[A-Za-z]+")
_MAX_FACTORS = 3  # letters in a row that may be a product; more are a word
_CONSTANTS = frozenset("eEiI")
_WORD = re.compile(r"(?:\\(?:text|mathrm|mbox|textbf)\s*\{\s*)?([A-Za-z]{2,})\s*\}?")
# 5\text{ dozen}, 5\text{ and a half}; "million" is read as a power of ten.
_AMOUNTS = {"k", "quarter", *(VALUE_CHANGING_WORDS - set(SCALES))}
_AMOUNT = re.compile(
    r"(?<=\d)\s*\\(?:text|textrm|mathrm|mbox)\s*\{\s*(?:and (?:an?|one) )?"
    rf"({'|'.join(sorted(_AMOUNTS))})\b"
)
_SET = re.compile(r"(?:\\left\s*)?\\\{(.*?)(?:\\right\s*)?\\\}", re.DOTALL)
_TUPLE = re.compile(r"(?:\\left\s*)?\((.*?)(?:\\right\s*)?\)", re.DOTALL)


def describe_mismatch(gold: str, answer: str) -> str:
    """Returns why a bare answer cannot equal the gold, "" if nothing shows it."""
    if have_different_units(gold, answer):
        return "another unit than the gold's"
    if have_different_bases(gold, answer):
        return "another base than the gold's"
    if _AMOUNT.findall(gold) != _AMOUNT.findall(answer):
        return "another amount than the gold's"
    if is_reordered_word(gold, answer):
        return "letters in another order than the gold's"
    if is_list_with_other_repeats(gold, answer):
        return "a list that repeats other items than the gold's"
    if have_different_cases(gold, answer):
        return "a variable in another case than the gold's"
    if is_set_for_tuple(gold, answer):
        return "a set for an ordered list, or the reverse"
    return ""


def have_different_cases(text: str, other: str) -> bool:
    """Returns whether two formulas have the same variable in different cases.

    >>> have_different_cases("2x", "2X"), have_different_cases("Evelyn", "evelyn")
    (True, False)
    """
    if not text.isascii() or not other.isascii():
        return False
    mine, theirs = _read_variables(text), _read_variables(other)
    return any(
        letter not in theirs and letter.swapcase() in theirs - mine
        for letter in mine - _CONSTANTS
    )


def _read_variables(text: str) -> set[str]:
    """Returns the variables of a formula.

    A text of letters alone is a word or a choice, A to E; another letter is a variable.
    """
    if not re.search(r"[\d+*/^=<>()!-]|\\(?!text|math|mbox|operator)[a-z]", text):
        return set(text) if re.fullmatch("[f-zF-Z]", text) else set()
    runs = _LETTERS.findall(_TEXT.sub(" ", text))
    return {letter for run in runs if len(run) <= _MAX_FACTORS for letter in run}


def is_reordered_word(gold: str, answer: str) -> bool:
    r"""Returns whether both are words, or names such as ABCD, of the same letters.

    Up to three letters of which the first is small may be a product, as xy and aB,
    unless the gold is a text.

    >>> is_reordered_word("BACD", "ABCD"), is_reordered_word("aB", "Ba")
    (True, False)
    """
    word, other = (_WORD.fullmatch(side.strip()) for side in (gold, answer))
    if word is None or other is None:
        return False
    if word[1][0].islower() and len(word[1]) <= _MAX_FACTORS and "\\" not in gold:
        return False
    mine, theirs = word[1].lower(), other[1].lower()
    return mine != theirs and sorted(mine) == sorted(theirs)


def is_list_with_other_repeats(gold: str, answer: str) -> bool:
    """Returns whether two lists have the same items, but repeat them differently.

    A list of pairs is a set of solutions, which may be stated twice.

    >>> is_list_with_other_repeats("1, 1, 2", "1, 2")
    True
    """
    if "(" in gold:
        return False
    items, others = ([i.strip() for i in side.split(",")] for side in (gold, answer))
    return set(items) == set(others) and sorted(items) != sorted(others)


def is_set_for_tuple(text: str, other: str) -> bool:
    r"""Returns whether one is a set \{1,2\} and the other a pair (1,2), or longer.

    A list without brackets, 1, 2, may be either.
    """
    return (_is_set(text) and _is_tuple(other)) or (_is_tuple(text) and _is_set(other))


def _is_set(text: str) -> bool:
    found = _SET.fullmatch(text.strip())
    return found is not None and "," in found[1] and "(" not in found[1]


def _is_tuple(text: str) -> bool:
    found = _TUPLE.fullmatch(text.strip())
    return found is not None and "," in found[1] and not set("()[]") & {*found[1]}
