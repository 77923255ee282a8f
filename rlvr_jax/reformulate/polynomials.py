"""Exact rational functions of one unknown z, as chains of arithmetic define them.

Polynomials are tuples of fractions, the constant term first, without trailing zeros.
"""

import dataclasses
import itertools
from fractions import Fraction

Polynomial = tuple[Fraction, ...]


def _strip_leading_zeros(terms: list[Fraction]) -> Polynomial:
    while terms and terms[-1] == 0:
        terms.pop()
    return tuple(terms)


def _add(a: Polynomial, b: Polynomial) -> Polynomial:
    pairs = itertools.zip_longest(a, b, fillvalue=Fraction(0))
    return _strip_leading_zeros([x + y for x, y in pairs])


def _scale(a: Polynomial, factor: Fraction) -> Polynomial:
    return _strip_leading_zeros([x * factor for x in a])


def _multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    terms = [Fraction(0)] * (len(a) + len(b))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            terms[i + j] += x * y
    return _strip_leading_zeros(terms)


def _divide(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Returns quotient and remainder of polynomials, b not zero."""
    quotient, rest = [Fraction(0)] * len(a), list(a)
    while len(rest) >= len(b):
        factor, shift = rest[-1] / b[-1], len(rest) - len(b)
        quotient[shift] = factor
        for i, x in enumerate(b):
            rest[i + shift] -= factor * x
        rest = list(_strip_leading_zeros(rest))
    return _strip_leading_zeros(quotient), tuple(rest)


def _gcd(a: Polynomial, b: Polynomial) -> Polynomial:
    """Returns the greatest common divisor, by Euclid."""
    while b:
        a, b = b, _divide(a, b)[1]
    return a


def _evaluate_at(a: Polynomial, z: Fraction) -> Fraction:
    return sum((x * z**i for i, x in enumerate(a)), start=Fraction(0))


@dataclasses.dataclass(frozen=True)
class RationalFunction:
    """numerator / denominator, two polynomials in z; the denominator is not zero."""

    numerator: Polynomial
    denominator: Polynomial = (Fraction(1),)

    def __add__(self, other: "RationalFunction") -> "RationalFunction":
        """Returns the sum."""
        mine = _multiply(self.numerator, other.denominator)
        return RationalFunction(
            _add(mine, _multiply(other.numerator, self.denominator)),
            _multiply(self.denominator, other.denominator),
        )

    def __sub__(self, other: "RationalFunction") -> "RationalFunction":
        """Returns the difference."""
        return self + RationalFunction(
            _scale(other.numerator, Fraction(-1)), other.denominator
        )

    def __mul__(self, other: "RationalFunction") -> "RationalFunction":
        """Returns the product."""
        return RationalFunction(
            _multiply(self.numerator, other.numerator),
            _multiply(self.denominator, other.denominator),
        )

    def __truediv__(self, other: "RationalFunction") -> "RationalFunction":
        """Returns the quotient. Raises ZeroDivisionError if `other` is zero."""
        if not other.numerator:
            raise ZeroDivisionError("division by zero")
        return RationalFunction(
            _multiply(self.numerator, other.denominator),
            _multiply(self.denominator, other.numerator),
        )

    def evaluate(self, z: Fraction) -> Fraction:
        """Returns the value at z. Raises ZeroDivisionError at a pole."""
        return _evaluate_at(self.numerator, z) / _evaluate_at(self.denominator, z)

    def count_solutions(self, value: Fraction) -> int | None:
        """Returns how many real z give `value`; None if all z except poles do.

        They are the roots of numerator - value * denominator that are not roots of the
        denominator, counted exactly by Sturm's theorem on the square-free part.
        """
        level = _add(self.numerator, _scale(self.denominator, -value))
        if not level:
            return None
        while len(shared := _gcd(level, self.denominator)) > 1:
            level = _divide(level, shared)[0]
        return _count_real_roots(level)


def constant(value: Fraction) -> RationalFunction:
    """Returns the function that is `value` everywhere."""
    return RationalFunction(_strip_leading_zeros([value]))


def affine(offset: Fraction, slope: Fraction) -> RationalFunction:
    """Returns offset + slope * z."""
    return RationalFunction(_strip_leading_zeros([offset, slope]))


def _count_real_roots(a: Polynomial) -> int:
    """Returns the number of distinct real roots of a polynomial that is not zero."""
    derivative = _strip_leading_zeros([i * x for i, x in enumerate(a)][1:])
    if not derivative:
        return 0
    chain = [_divide(a, _gcd(a, derivative))[0]]
    chain.append(_strip_leading_zeros([i * x for i, x in enumerate(chain[0])][1:]))
    while chain[-1]:
        rest = _divide(chain[-2], chain[-1])[1]
        chain.append(_scale(rest, Fraction(-1)))
    signs_right = [each[-1] > 0 for each in chain if each]
    signs_left = [(each[-1] > 0) == (len(each) % 2 == 1) for each in chain if each]
    return _count_sign_changes(signs_left) - _count_sign_changes(signs_right)


def _count_sign_changes(signs: list[bool]) -> int:
    return sum(a != b for a, b in itertools.pairwise(signs))
