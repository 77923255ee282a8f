r"""Compares sympy's readings where math-verify does not: roots, and false equations.

sympy is imported inside, so that this package starts without it.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from rlvr_jax.verifiers.answers.numerals import parse_decimal

_EQUALS = re.compile(r"(?<![<>!:\\])=")
_LETTER = re.compile(r"\\\$|\\(?:text|mathrm|pmod|bmod|mod|equiv)(?![A-Za-z])|_")
_MAX_SIDES = 6
_MIN_POINTS = 4  # that decide; fewer prove nothing
_DIGITS = 30
# Magnitudes below and above 1, and no simple ratios between them.
_SIZES = (0.3719, 1.6180, 2.7431, 0.8413, 5.3317, 11.2894)


def agree_where_real(gold: Any, answer: Any) -> bool:
    r"""Returns whether two formulas agree at every tried point where both are real.

    This shows that \sqrt{1/n} is 1/\sqrt{n}, which sympy only simplifies for positive
    n. Negative points tell \sqrt{x^2} from x. Formulas that agree to 20 digits at ten
    points without being equal are not written by accident.
    """
    from sympy import Float  # noqa: PLC0415
    from sympy.core.evalf import PrecisionExhausted  # noqa: PLC0415

    symbols = sorted(gold.free_symbols | answer.free_symbols, key=lambda x: x.name)
    if not symbols or len(symbols) > 4 or gold.free_symbols != answer.free_symbols:
        return False
    num_decided = 0
    for shift in range(2 * len(_SIZES)):
        point = {
            symbol: Float(
                _SIZES[(shift + 2 * place) % len(_SIZES)]
                * (-1 if shift >= len(_SIZES) and (shift >> place) % 2 == 0 else 1),
                _DIGITS,
            )
            for place, symbol in enumerate(symbols)
        }
        try:
            one, other = (
                side.evalf(_DIGITS, subs=point, strict=True) for side in (gold, answer)
            )
        except (PrecisionExhausted, TypeError, ValueError, ZeroDivisionError):
            continue
        if not (one.is_real and other.is_real):
            continue
        if abs(one - other) > 1e-20 * max(abs(one), abs(other), 1e-9):
            return False
        num_decided += 1
    return num_decided >= _MIN_POINTS


def is_false_equation(text: str, parse: Callable[[str], Sequence[Any]]) -> bool:
    """Returns whether two sides of "=" in an answer are numbers that differ: 43 = 42.

    A rounded side may differ by its rounding: 10/3 = 3.33. Sides with units or in other
    bases are not compared.
    """
    sides = _EQUALS.split(text)
    if not 2 <= len(sides) <= _MAX_SIDES or _LETTER.search(text) or "," in text:
        return False
    values = [read_value(side.strip(), parse) for side in sides]
    for (one, error), (other, other_error) in itertools.pairwise(values):
        if one is None or other is None:
            continue
        size = max(abs(one), abs(other))
        if abs(one - other) > max(error, other_error) + 1e-9 * size:
            return True
    return False


def read_value(
    side: str, parse: Callable[[str], Sequence[Any]]
) -> tuple[float | None, float]:
    """Returns a formula's value, None if it has variables; and its rounding error."""
    number = parse_decimal(side)
    if number is not None:
        decimals = len(side.partition(".")[2])
        error = Fraction(51, 100) / 10**decimals if decimals else Fraction(0)
        is_large = abs(number) > 10**300
        return (None, 0.0) if is_large else (float(number), float(error))
    if not side or re.search(r"(?<![\\A-Za-z])[A-Za-z]", side):
        return None, 0.0
    for reading in parse(side):
        value: Any = getattr(reading, "evalf", lambda: None)()
        if getattr(value, "is_Float", False) or getattr(value, "is_Integer", False):
            return float(value), 0.0
    return None, 0.0
