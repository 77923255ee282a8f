"""Rational functions of one unknown, exactly: what a chain of arithmetic makes of z.

Polynomials are tuples of fractions, the constant term first, without trailing zeros.
"""

import dataclasses
import itertools
from fractions import Fraction

Polynomial = tuple[Fraction, ...]


def _trimmed(terms: list[Fraction]) -> Polynomial:
    while terms and terms[-1] == 0:
        terms.pop()
    return tuple(terms)


def _add(a: Polynomial, b: Polynomial) -> Polynomial:
    pairs = itertools.zip_longest(a, b, fillvalue=Fraction(0))
    return _trimmed([x + y for x, y in pairs])


def _scale(a: Polynomial, factor: Fraction) -> Polynomial:
    return _trimmed([x * factor for x in a])


def _multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    terms = [Fraction(0)] * (len(a) + len(b))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            terms[i + j] += x * y
    return _trimmed(terms)


def _divide(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Returns quotient and remainder of polynomials, b not zero."""
    quotient, rest = [Fraction(0)] * len(a), list(a)
    while len(rest) >= len(b):
        factor, shift = rest[-1] / b[-1], len(rest) - len(b)
        quotient[shift] = factor
        for i, x in enumerate(b):
            rest[i + shift] -= factor * x
        rest = list(_trimmed(rest))
    return _trimmed(quotient), tuple(rest)


def _common(a: Polynomial, b: Polynomial) -> Polynomial:
    """Returns the greatest common divisor, by Euclid."""
    while b:
        a, b = b, _divide(a, b)[1]
    return a


def _value(a: Polynomial, z: Fraction) -> Fraction:
    return sum((x * z**i for i, x in enumerate(a)), start=Fraction(0))


@dataclasses.dataclass(frozen=True)
class Rational:
    """above / below, two polynomials in z; below is not zero."""

    above: Polynomial
    below: Polynomial = (Fraction(1),)

    def __add__(self, other: "Rational") -> "Rational":
        """Returns the sum."""
        mine = _multiply(self.above, other.below)
        return Rational(
            _add(mine, _multiply(other.above, self.below)),
            _multiply(self.below, other.below),
        )

    def __sub__(self, other: "Rational") -> "Rational":
        """Returns the difference."""
        return self + Rational(_scale(other.above, Fraction(-1)), other.below)

    def __mul__(self, other: "Rational") -> "Rational":
        """Returns the product."""
        return Rational(
            _multiply(self.above, other.above), _multiply(self.below, other.below)
        )

    def __truediv__(self, other: "Rational") -> "Rational":
        """Returns the quotient. Raises ZeroDivisionError where `other` is zero."""
        if not other.above:
            raise ZeroDivisionError("division by zero")
        return Rational(
            _multiply(self.above, other.below), _multiply(self.below, other.above)
        )

    def at(self, z: Fraction) -> Fraction:
        """Returns the value at z. Raises ZeroDivisionError at a pole."""
        return _value(self.above, z) / _value(self.below, z)

    def solutions(self, value: Fraction) -> int | None:
        """Returns how many real z give `value`; None where all but poles do.

        They are the roots of above - value * below that are no roots of below:
        counted exactly, by Sturm's theorem on the square-free part.
        """
        level = _add(self.above, _scale(self.below, -value))
        if not level:
            return None
        while len(shared := _common(level, self.below)) > 1:
            level = _divide(level, shared)[0]
        return _real_roots(level)


def constant(value: Fraction) -> Rational:
    """Returns the function that is `value` everywhere."""
    return Rational(_trimmed([value]))


def affine(offset: Fraction, slope: Fraction) -> Rational:
    """Returns offset + slope * z."""
    return Rational(_trimmed([offset, slope]))


def _real_roots(a: Polynomial) -> int:
    """Returns the number of distinct real roots of a polynomial that is not zero."""
    derivative = _trimmed([i * x for i, x in enumerate(a)][1:])
    if not derivative:
        return 0
    chain = [_divide(a, _common(a, derivative))[0]]
    chain.append(_trimmed([i * x for i, x in enumerate(chain[0])][1:]))
    while chain[-1]:
        rest = _divide(chain[-2], chain[-1])[1]
        chain.append(_scale(rest, Fraction(-1)))
    signs_right = [each[-1] > 0 for each in chain if each]
    signs_left = [(each[-1] > 0) == (len(each) % 2 == 1) for each in chain if each]
    return _changes(signs_left) - _changes(signs_right)


def _changes(signs: list[bool]) -> int:
    return sum(a != b for a, b in itertools.pairwise(signs))
