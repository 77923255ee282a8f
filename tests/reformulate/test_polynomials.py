"""Rational functions of one unknown: exact arithmetic, and counts of solutions."""

from fractions import Fraction

import pytest

from rlvr_jax.reformulate.polynomials import RationalFunction, affine, constant

Z = affine(Fraction(0), Fraction(1))


def c(value: int | str) -> RationalFunction:
    return constant(Fraction(value))


@pytest.mark.parametrize(
    ("function", "value", "count"),
    [
        (Z / c(2) + Z, 72, 1),  # GSM8K's first problem: z = 48
        (c(100) - c("1/3") * Z, 7, 1),
        (Z * Z, 49, 2),
        (Z * Z, 0, 1),  # a double root is one solution
        (Z * Z, -1, 0),
        (Z * Z * Z - Z, 0, 3),
        (Z * Z * Z, 8, 1),
        (c(1) / Z, 2, 1),
        (c(1) / Z, 0, 0),
        (Z * Z / Z, 0, 0),  # z = 0 is a pole of z^2 / z
        (Z * Z / Z, 3, 1),
        (c(6) / (Z - c(2)) + Z, 7, 2),  # z^2 - 9 z + 20: 4 and 5
        (Z - Z + c(5), 5, None),
        (Z - Z + c(5), 6, 0),
    ],
)
def test_solutions_are_counted_exactly(function, value, count):
    assert function.count_solutions(Fraction(value)) == count


def test_values_are_fractions():
    assert (c(10) / (Z * c(3))).evaluate(Fraction(7)) == Fraction(10, 21)


def test_division_by_the_zero_function_is_an_error():
    with pytest.raises(ZeroDivisionError):
        c(1) / (Z - Z)
