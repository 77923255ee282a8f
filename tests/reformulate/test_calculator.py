"""Chains of calculator annotations, evaluated with an unknown."""

from fractions import Fraction

import pytest

from rlvr_jax.reformulate.calculator import check_unique_solution

CLIPS = "She sold <<48/2=24>>24 in May, in all <<48+24=72>>72."


def _check(worked, gold, value, *known, percent=False):
    return check_unique_solution(
        worked,
        gold=Fraction(gold),
        value=Fraction(value),
        percent=percent,
        known_numbers=frozenset(map(Fraction, (1, *known))),
    )


@pytest.mark.parametrize(
    ("worked", "gold", "value", "known", "percent"),
    [
        (CLIPS, 72, 48, [2], False),
        ("<<220*0.95=209>>", 209, 5, [220], True),  # 1 - 5/100
        ("<<80*1.5=120>>", 120, 150, [80], True),  # 150/100
        ("<<80*2.5=200>>", 200, 150, [80], True),  # 1 + 150/100
        ("<<(60+72+42)/3=58>>", 58, 72, [60, 42, 3], False),
        ("<<3*.5=1.5>> <<10-1.5=8.5>>", "8.5", ".5", [3, 10], False),
        ("<<-4+3*2,000=5,996>>", 5996, 2000, [3, 4], False),
        # 24 is both a quantity and a result, and unique with either meaning.
        ("<<48/2=24>> <<48+24=72>>", 72, 48, [2, 24], False),
    ],
)
def test_a_quantity_that_the_answer_determines_is_verified(
    worked, gold, value, known, percent
):
    assert _check(worked, gold, value, *known, percent=percent).outcome == "verified"


@pytest.mark.parametrize(
    ("worked", "gold", "value", "known"),
    [
        ("<<7*7=49>>", 49, 7, []),  # also -7
        ("<<5-5=0>> <<0+3=3>>", 3, 5, [3]),  # any z
        # the chain reaches the answer without z
        ("<<8*2=16>> <<3+4=7>>", 7, 8, [2, 3, 4]),
    ],
)
def test_a_quantity_that_it_leaves_open_has_several_solutions(
    worked, gold, value, known
):
    assert _check(worked, gold, value, *known).outcome == "ambiguous"


@pytest.mark.parametrize(
    ("worked", "gold", "value", "known", "reason"),
    [
        ("no chain", 1, 2, [], "no calculator annotations"),
        ("<<10/3=3.33>>", "3.33", 10, [3], "rounded or wrong"),
        (CLIPS, 73, 48, [2], "does not arrive at the gold"),
        (CLIPS, 72, 48, [], "a number of the chain is not in the question"),
        (CLIPS, 72, 5, [48, 2], "the quantity is not in the chain"),
        ("<<2*x=4>>", 4, 2, [], "no arithmetic"),
        ("<<2*(3=6>>", 6, 2, [3], "no arithmetic"),
        ("<<3^2=9>>", 9, 3, [2], "a power"),
        ("<<3/0=3>>", 3, 3, [0], "divides by zero"),
        # The 2 is the quantity or the word "twice"; with the word, the quantity has no
        # effect.
        ("<<2*3=6>>", 6, 2, [2, 3], "in several ways"),
        ("<<" + "2+" * 7 + "2=16>>", 16, 2, [2], "in too many ways"),
    ],
)
def test_quantities_that_the_chain_does_not_settle_are_unchecked(
    worked, gold, value, known, reason
):
    found = _check(worked, gold, value, *known)
    assert found.outcome == "unchecked"
    assert reason in found.reason


def test_a_long_annotation_does_not_count():
    assert _check(f"<<{'(' * 100_000}=1>>", 1, 1).outcome == "unchecked"
