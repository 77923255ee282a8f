"""Answers that may reach a scorer that evaluates them: both sides of each bound."""

import pytest

from rlvr_jax.tasks.reasoning_gym.plain_answers import (
    describe_unsafe_answer,
    is_bounded_formula,
)


@pytest.mark.parametrize(
    "text",
    [
        *("97 + 57 * (3 - 1)", "-x**2/2 + C", "exp(2*x)*sin(x)", "1.5*x**(3/2)"),
        *("(x + 1)**100", "x**-2", "((x + 1)**4)**5", "sqrt(x**2 + 1)", "x*y*z", "pi"),
        *("1000000000000", "log(Abs(x - 3))", " 3\t+ 4\n"),
    ],
)
def test_formulas_pass(text):
    assert is_bounded_formula(text)


@pytest.mark.parametrize(
    "text",
    [
        # Not arithmetic.
        *("", "(", "print(1)", "x.real", "x[0]", "[1]", "'a'*9", "x if y else z"),
        *("lambda: 1", "exp(x, 2)", "exp(x=2)", "exp(*x)", "f'{x}'", "_x", "x == 2"),
        *("x and y", "__import__('os')", "(exp)(x)(y)", "True", "5!", "2x", "x; y"),
        *(
            "x := 3",
            "sympify('x')",
            "1 // 2",
            "5 % 3",
            "2 ^ 3",
            "5 @ 3",
            "x\nimport os",
        ),
        # Numbers that are too large as written, or as a result.
        *(
            "1000000000001",
            "1e9",
            "0xff",
            "2j",
            "1_000",
            "9**9**9",
            "x**101",
            "x**-101",
        ),
        *("(x**99)**99", "2**(9*9)", "2**x", "x**(1/0)", "x**1.5e9", "9**True"),
        # Letters that Python treats as other ones.
        "\uff58 + 1",
    ],
)
def test_nothing_else_passes(text):
    assert not is_bounded_formula(text)


def test_nested_powers_count_as_often_as_they_are_multiplied_out():
    assert is_bounded_formula("((x + y)**20)**50")  # 2 x 1,000
    assert not is_bounded_formula("((x + y)**20)**51")


def test_a_formula_is_bounded_in_depth():
    assert is_bounded_formula("+".join(["x"] * 200))
    assert not is_bounded_formula("+".join(["x"] * 201))
    for deep in ("-" * 900 + "x", "x**" + "-" * 900 + "1", "x" + "**1" * 900):
        assert not is_bounded_formula(deep)


@pytest.mark.parametrize(
    ("text", "is_safe"),
    [
        ("0 1\n1 0", True),
        ("[[0, 1], [1, 0]]", True),
        ("('a', -1)", True),
        ("['Q', Q, _]", True),
        ("Q _ _\n_ Q _", True),
        ("[0 for x in y]", False),
        ("list(y)", False),
        ("'a' * 9", False),
        ("y.x", False),
        ("{**y}", False),
        ("f'{y}'", False),
    ],
)
def test_a_list_in_place_of_a_grid_holds_plain_values(text, is_safe):
    for name in ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"):
        assert (describe_unsafe_answer(name, text) == "") == is_safe
    assert describe_unsafe_answer("gcd", text) == ""


def test_counts_and_powers_of_ten_are_bounded():
    for name in ("rubiks_cube", "rush_hour"):
        assert describe_unsafe_answer(name, "R2 F+999") == ""
        assert describe_unsafe_answer(name, "R2 F+1000") != ""
    assert describe_unsafe_answer("coin_flip", "5e-10") == ""
    assert describe_unsafe_answer("coin_flip", "1E999") != ""
