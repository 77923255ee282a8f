r"""Finds expressions that would cost too much to parse.

The text of a degenerate policy can cost the grammar or sympy seconds to minutes, and
then a new worker: "1+1+1+" to the end, deep brackets, towers of powers, numbers with a
million digits. The golds of GSM8K, MATH-500 and DeepScaleR's sample have at most 145
characters and 2 levels of brackets.
"""

import collections
import itertools
import math
import re

# Only this much of a completion's end is read for an answer. It has room for a final
# answer of 4,000 tokens, and bounds the cost of one item.
MAX_COMPLETION_CHARACTERS = 16_384
MAX_CHARACTERS = 500
_MAX_DEPTH = 12  # each level of \frac doubles the grammar's time: 12 take half a second
_MAX_DIGITS = 20_000  # of a number that is computed, such as 2^{1000} or 50!
_MAX_TERMS = 10_000  # of \sum and \prod
_MAX_EXPONENT = 9.0  # log10; with this exponent, any base but 1 exceeds the limit

_TOWER = re.compile(r"\^\s*\{[^{}]*\^\s*\{[^{}]*\^|\^\s*\{?\s*\d{6}", re.ASCII)
_DETERMINANT = re.compile(r"\\det(?![A-Za-z])|\\begin\s*\{vmatrix\}")
_MAX_COLUMN_BREAKS = 12  # "&" in a determinant: 4 by 4, because 5 by 5 takes seconds
_UNION = re.compile(r"\\c[au]p(?![A-Za-z])")
_MAX_UNIONS = 12  # 30 intervals take seconds
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+|\S", re.ASCII | re.DOTALL)
_OPENING, _CLOSING = frozenset("{[("), frozenset("}])")
_JOINTS = frozenset("+-,;=<>&|") | {"\\\\"}

Tokens = collections.deque[str]


class _TooLargeError(Exception):
    """A number has too many digits, or a sum too many terms."""


def describe_cost(text: str) -> str:
    """Returns why an expression costs too much to parse, "" if it does not."""
    if len(text) > MAX_CHARACTERS:
        return f"over {MAX_CHARACTERS} characters"
    if _bracket_depth(text) > _MAX_DEPTH:
        return f"brackets over {_MAX_DEPTH} deep"
    if _TOWER.search(text):
        return "a tower of powers, or an exponent with six digits"
    if _DETERMINANT.search(text) and text.count("&") > _MAX_COLUMN_BREAKS:
        return "a determinant over 4 by 4"
    if len(_UNION.findall(text)) > _MAX_UNIONS:
        return f"a union of over {_MAX_UNIONS + 1} sets"
    tokens = collections.deque(_TOKEN.findall(text))
    try:
        while tokens:
            _bound_group(tokens)
    except _TooLargeError as error:
        return str(error)
    return ""


def _bracket_depth(text: str) -> int:
    """Returns the largest number of brackets of any kind that are open at once."""
    steps = ((c in _OPENING) - (c in _CLOSING) for c in text)
    return max(itertools.accumulate(steps), default=0)


def _bound_group(tokens: Tokens) -> float:
    """Takes the tokens up to a closing bracket; returns log10 of a bound on the value.

    Letters and functions count as 1. Raises _TooLargeError if a number in it is too
    large.
    """
    terms = [0.0]
    while tokens and tokens[0] not in _CLOSING:
        if tokens[0] in _JOINTS:
            tokens.popleft()
            terms.append(0.0)
        else:
            terms[-1] += _bound_power(tokens)
    if tokens:
        tokens.popleft()
    return max(terms) + math.log10(len(terms))


def _bound_power(tokens: Tokens) -> float:
    """Takes a factor with its exponents and factorials; returns log10 of its bound."""
    digits = _bound_factor(tokens)
    while tokens and tokens[0] in ("^", "!"):
        if tokens.popleft() == "^":
            digits = _limit_digits(digits, _bound_power(tokens))
        else:
            digits = _limit_digits(digits, digits)  # n! is at most n^n
    return digits


def _bound_factor(tokens: Tokens) -> float:
    """Takes a number, group, fraction or other token; returns log10 of its bound."""
    token = tokens.popleft() if tokens else ""
    if token in _OPENING:
        return _bound_group(tokens)
    if token.isdigit():
        return math.log10(max(1, int(token)))
    if token in ("_", "/"):
        _bound_factor(tokens)
    elif token in ("\\frac", "\\dfrac", "\\tfrac"):
        above, _ = _bound_factor(tokens), _bound_factor(tokens)
        return above
    elif token in ("\\binom", "\\dbinom", "\\tbinom"):
        return _limit_digits(_bound_factor(tokens), _bound_factor(tokens))
    elif token in ("\\sum", "\\prod"):
        _limit_terms(tokens)
    return 0.0


def _limit_digits(digits: float, exponent: float) -> float:
    """Returns log10 of a power, given log10 of its base and of its exponent."""
    power = digits * 10 ** min(exponent, _MAX_EXPONENT)
    if power > _MAX_DIGITS:
        raise _TooLargeError(f"a number with over {_MAX_DIGITS} digits")
    return power


def _limit_terms(tokens: Tokens) -> None:
    """Takes the range of a sum or product."""
    for _ in range(2):
        if tokens and tokens[0] in ("_", "^"):
            is_upper = tokens.popleft() == "^"
            bound = _bound_factor(tokens)
            if is_upper and bound > math.log10(_MAX_TERMS):
                raise _TooLargeError(f"a sum with over {_MAX_TERMS} terms")
