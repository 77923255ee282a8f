"""Formulas as equations in z: proven unique, proven ambiguous, or left open."""

from fractions import Fraction

import pytest

from rlvr_jax.reformulate.uniqueness import check_unique_formula


def _outcome(question: str, gold: object, value: object) -> str:
    return check_unique_formula(
        question, gold=Fraction(gold), value=Fraction(value), unknown="z"
    ).outcome


@pytest.mark.parametrize(
    ("question", "gold", "value"),
    [
        (r"Compute $3 \cdot z + 4$.", 19, 5),
        (r"What is $\frac{z}{4} - \frac{1}{2}$?", "1/4", 3),
        (r"Write $z$ as a decimal.", "3/20", "3/20"),
        (r"If $zx + 2(1 + x) = 17$, what is the value of $6x + 5$?", 23, 3),
        (r"If $x + y = z$ and $x - y = 2$, what is $x$?", 5, 8),
        (r"Solve for $x$: $\frac{x}{z} + \frac{x}3 = 5$", 6, 2),
        (r"Let $f(x) = 2x - z$ and $g(x) = x+1$. Find $g(f(5)-1)$.", 7, 3),
        (r"Find $r$ such that $$\frac{zr^2 -19r - 7}{2r-7} = 4r-3.$$", 4, 6),
        # One real root and two complex ones.
        (r"Compute $z^3 + z$.", 10, 2),
    ],
)
def test_one_solution_is_verified(question, gold, value):
    assert _outcome(question, gold, value) == "verified"


@pytest.mark.parametrize(
    ("question", "gold", "value"),
    [
        (r"Compute $z^2 + 1$.", 26, 5),
        (r"Compute $(z - 2)(z - 3)$.", 2, 4),
        (r"If $x + z^2 = 12$, find $x$.", 3, 3),
    ],
)
def test_several_solutions_are_ambiguous(question, gold, value):
    assert _outcome(question, gold, value) == "ambiguous"


@pytest.mark.parametrize(
    ("question", "gold", "value"),
    [
        # Words that say more than the formula.
        (r"Find the largest $x$ such that $x^2 = z$.", 3, 9),
        (r"Compute $z + 1$ to the nearest ten.", 10, 5),
        (r"If $x > z$, what is $x$?", 3, 2),
        # Not rational, not arithmetic, not a product.
        (r"Compute $\lfloor z \rfloor$.", 5, 5),
        (r"Compute $2^z$.", 8, 3),
        (r"Compute $z!$.", 120, 5),
        (r"If $f(z) = 3$, what is $2f(2)$?", 6, 2),
        (r"Compute $z^{99999999}$.", 1, 1),
        # The unknown has no effect; the formula contradicts the gold; the text asks
        # nothing.
        (r"If $x + 2 = 5$ and $y = z$, what is $x$?", 3, 7),
        (r"Compute $0 \cdot z + 5$.", 5, 7),
        (r"Compute $z + 1$.", 10, 5),
        ("How many clips is z?", 10, 10),
    ],
)
def test_what_the_formula_cannot_decide_is_unchecked(question, gold, value):
    assert _outcome(question, gold, value) == "unchecked"
