"""Reads the result of a calculation in prose: "7 puppies / 20 puppies * 100% = 35%".

The result is the number on the right. If both sides can be computed from the text and
differ (43 = 42, 3 * 4 = 15), there is no result.
"""

import re
from decimal import Decimal
from fractions import Fraction

from rlvr_jax.verifiers.answers.arithmetic import (
    ArithmeticFaultError,
    evaluate_expression,
)

# Words that change the value of the number next to them.
VALUE_CHANGING_WORDS = {
    *("hundred", "thousand", "million", "billion", "trillion", "dozen", "not"),
    *("minus", "negative", "plus", "times", "over", "squared", "cubed"),
    *("half", "halves", "third", "thirds", "fourths", "fifths", "sixths", "eighths"),
    *("tenth", "tenths", "hundredths", "thousandths", "factorial", "bn"),
}
FUNCTIONS = {"sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp"}
FUNCTIONS |= {"arcsin", "arccos", "arctan", "min", "max", "gcd"}

# The left side of a calculation, perhaps with "x =" before it.
_SUM = re.compile(
    r"(?:[A-Za-z]\s*=)?(?:[^A-Za-z\\<>!,]|\\[$%!,]|,(?=\d{3})"
    r"|\\(?:[dt]?frac|times|cdot|div|left|right)(?![A-Za-z]))*",
    re.ASCII,
)
# A number and its unit: the result of "7 puppies / 20 puppies * 100% = 35%".
_RESULT = re.compile(
    r"\s*(-?\\?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?\\?%)?)"
    r"(?:(?:\s+|/)[A-Za-z][A-Za-z'&]*)*[\s.,:!?]*",
    re.ASCII,
)
_SEVERAL = re.compile(r"[,;]\s|\b(?:and|or)\b")
_TIMES = re.compile(r"(?:(?<=[\d%])|^)\s*x\s*(?=\$?\d)")
_NUMERAL = re.compile(r"[-+]?(?:\d{1,300}(?:\.\d{0,300})?|\.\d{1,300})", re.ASCII)
_UNITS = re.compile(r"/?[A-Za-z']{2,}")
_PRODUCT = re.compile(r"\\(?:times|cdot)(?![A-Za-z])")
_QUOTIENT = re.compile(r"\\div(?![A-Za-z])")


def read_result(piece: str) -> str:
    """Returns the number that a calculation ends in, "" if it does not."""
    left, _, right = piece.rpartition("=")
    number = _RESULT.fullmatch(right)
    if number is None or not is_calculation(left):
        return ""
    if is_false_calculation(left, number[1]):
        return ""
    unit = set(right[number.end(1) :].lower().split())
    return "" if unit & (VALUE_CHANGING_WORDS - {"times"}) else number[1].strip()


def is_calculation(left: str) -> bool:
    """Returns whether the text before "=" is a calculation or the name of its result.

    In an equation with unknowns, 2x + 3y = 7, the right side is not an answer.
    """
    plain = _UNITS.sub("", _TIMES.sub("*", left.strip()))
    return not _SEVERAL.search(left) and bool(
        _SUM.fullmatch(plain) or re.fullmatch(r"[A-Za-z]\s*", plain)
    )


def is_numeral(text: str) -> bool:
    """Returns whether a text is a decimal numeral and nothing else."""
    return _NUMERAL.fullmatch(text) is not None


def is_false_calculation(left: str, right: str) -> bool:
    """Returns whether both sides of "=" have values, and these differ: 3 * 4 = 15.

    A right side may be rounded: by half of its last digit, or by less than 1 if it is
    the whole number of a division (50 / 8 = 6 or 7 boxes). Units are not read.
    """
    result = re.sub(r"[,$\\\s]", "", right)
    if not is_numeral(result):
        return False
    shown = left.rpartition("=")[2]
    numeral = re.sub(r"[,$\\\s]", "", shown)
    if is_numeral(numeral):
        return Decimal(numeral) != Decimal(result)
    shown = _QUOTIENT.sub("/", _PRODUCT.sub("*", _TIMES.sub("*", shown)))
    try:
        value = evaluate_expression(shown.replace(r"\$", "$"))
    except ArithmeticFaultError:
        return False
    decimals = len(result.partition(".")[2])
    error = Fraction(51, 100) / 10**decimals if decimals else Fraction("/" in shown)
    distance = abs(value - Fraction(Decimal(result)))
    return distance > error or (error == 1 == distance)
