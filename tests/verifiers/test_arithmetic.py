"""The calculator: results and refusals."""

import re
from fractions import Fraction

import pytest

from rlvr_jax.verifiers.answers.arithmetic import (
    ArithmeticFaultError,
    evaluate_expression,
    format_value,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("48 + 7", 55),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("10 - 3 - 2", 5),
        ("24 / 4 / 2", 3),
        ("24 / (4 / 2)", 12),
        ("-3 * -2", 6),
        ("2 - -3", 5),
        ("-(1 + 2)", -3),
        ("0.1 + 0.2", Fraction(3, 10)),
        (".5 * 3.", Fraction(3, 2)),
        ("1/3", Fraction(1, 3)),
        ("  7  ", 7),
        ("9" * 40, 10**40 - 1),
        ("+30+46", 76),
        ("2 - +3", -1),
        ("48 \u00f7 6", 8),
        ("3 \u00d7 4 \u00b7 2", 24),
        ("7 \u2212 9", -2),
        ("7 \u2013 9", -2),
        ("1,200*3", 3600),
        ("12,345,678.50 + 0", Fraction(24691357, 2)),
        ("$5*3", 15),
        ("$ 1,000 - $.50", Fraction(1999, 2)),
        ("2^10", 1024),
        ("2 ** 10", 1024),
        ("2^3^2", 512),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("(-2)^3", -8),
        ("2^-2", Fraction(1, 4)),
        ("2*3^2", 18),
        ("(1/2)^3", Fraction(1, 8)),
        ("0^0", 1),
        ("48 + 7 =", 55),
        ("48+7=", 55),
    ],
)
def test_the_value_is_exact(text, value):
    assert evaluate_expression(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "incomplete"),
        ("2 +", "incomplete"),
        ("(2", "incomplete"),
        ("(2 3", "not closed"),
        ("2 3", "unexpected 3"),
        ("* 2", "unexpected *"),
        (")", "unexpected )"),
        ("1 / (2 - 2)", "division by 0"),
        ("2 * * 9", "unexpected *"),
        ("2 ^", "incomplete"),
        ("^ 2", "unexpected ^"),
        ("4^(1/2)", "no power of 1/2"),
        ("1^201", "no power of 201"),
        ("10^40", "too large"),
        ("9^9^9", "no power of 387420489"),
        ("0^-1", "division by 0"),
        ("1,20*3", "unexpected ,"),
        ("1,2000", "unexpected ,"),
        ("1200,000", "unexpected ,"),
        ("$x", "unexpected $"),
        ("5$", "unexpected $"),
        ("2 + 2 = 4", "unexpected ="),
        ("=", "incomplete"),
        ("1+1==", "unexpected ="),
        ("__import__('os')", "unexpected _"),
        ("1e9", "unexpected e"),
        ("9" * 41, "too large"),
        ("9" * 30 + "*" + "9" * 30, "too large"),
        ("(" * 30 + "1" + ")" * 30, "too deep"),
        ("-" * 30 + "1", "too deep"),
        ("1+" * 100 + "1", "too long"),
        ("٣ + 1", "unexpected ٣"),
    ],
)
def test_input_that_is_not_arithmetic_is_refused_with_a_reason(text, why):
    with pytest.raises(ArithmeticFaultError, match=re.escape(why)):
        evaluate_expression(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(-7), "-7"),
        (Fraction(1, 8), "0.125"),
        (Fraction(-1, 2), "-0.5"),
        (Fraction(12345, 100), "123.45"),
        (Fraction(1, 10**6), "0.000001"),
        (Fraction(1, 10**7), "1/10000000"),
        (Fraction(-2, 3), "-2/3"),
    ],
)
def test_a_value_is_written_exactly(value, text):
    assert format_value(value) == text
    sign, number = (-1, text[1:]) if text.startswith("-") else (1, text)
    assert sign * evaluate_expression(number) == value
