"""The calculator: results and refusals."""

from fractions import Fraction

import pytest

from rlvr_jax.environments.arithmetic import (
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
        ("2 ** 9", "unexpected *"),
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
    with pytest.raises(
        ArithmeticFaultError, match=why.replace("*", r"\*").replace(")", r"\)")
    ):
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
