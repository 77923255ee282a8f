"""Lenient accuracy: whether a completion states a numeric gold answer anywhere."""

import pytest

from rlvr_jax.metrics.lenient import (
    has_lenient_accuracy,
    is_lenient_success,
    states_gold,
)


@pytest.mark.parametrize(
    "text",
    [
        "12",
        "So 12.",
        "(12)",
        "**12**",
        "$12",
        "= 12, and",
        "\\boxed{12}",
        "not 12!",
        "-12",
    ],
)
def test_a_number_of_its_own_is_stated(text):
    assert states_gold(text, "12")


@pytest.mark.parametrize(
    "text",
    ["", "120", "112", "3.12", "12.5", "12,000", "1,012", "x12", "12th", "twelve"],
)
def test_a_part_of_a_number_or_word_is_not(text):
    assert not states_gold(text, "12")


def test_signs_points_and_commas_of_the_gold_are_its_own():
    assert states_gold("7 - 11 = -4", "-4")
    assert not states_gold("7 - 11 = 4", "-4")
    assert states_gold("about 2.5 km", "2.5")
    assert not states_gold("about 275 km", "2.5")  # the point is not a wildcard


def test_what_is_correct_counts_however_it_is_written():
    """So lenient accuracy is never below strict accuracy."""
    assert is_lenient_success("correct", "1,200", ["1200"])
    assert not is_lenient_success("incorrect", "1,200", ["1200"])
    assert is_lenient_success("incorrect", "7 or 8", ["12", "8"])


def test_it_is_measured_where_every_gold_is_a_number():
    assert has_lenient_accuracy(["12", "-4", "1,200", "0.5"])
    for gold in ("e3", "1/2", "x", "12 cm", "", "--4"):
        assert not has_lenient_accuracy(["12", gold])
