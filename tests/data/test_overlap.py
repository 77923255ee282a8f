"""Overlap of texts: at least thirteen words in a row, without case and punctuation."""

import doctest

import pytest

from rlvr_jax.data import overlap
from rlvr_jax.data.overlap import OverlapIndex, split_words, whole_key

WORDS = [f"w{i}" for i in range(40)]
ASKED = " ".join(WORDS[:20])


def found(text, evaluation=ASKED, **settings):
    index = OverlapIndex({"quiz": [("q", evaluation)]}, **settings)
    return index.find(text)


def shares(count, start=4):
    """Returns a text with `count` words of WORDS in a row, among others."""
    return " ".join(["x", *WORDS[start : start + count], "y", "z"])


def test_thirteen_words_in_a_row_are_an_overlap_and_twelve_are_not():
    assert not found(shares(12))
    [shared] = found(shares(13))
    assert shared == ("quiz", "q", " ".join(WORDS[4:17]))


def test_the_number_of_words_is_a_setting():
    assert not found(shares(4), n=5)
    assert found(shares(5), n=5)


def test_words_must_be_consecutive_and_in_order():
    broken = [*WORDS[:12], "x", *WORDS[12:20]]
    assert not found(" ".join(broken))
    assert not found(" ".join(reversed(WORDS[:20])))
    assert found(" ".join(WORDS[:13]))  # at the very beginning
    assert found(" ".join(WORDS[7:20]))  # at the very end


def test_case_punctuation_and_layout_do_not_matter():
    written = ", ".join(WORDS[2:15]).upper().replace("W7", "\\text{w7}") + "!?"
    assert found(f"\\left( {written} \\right)")
    assert found("\u3000".join(WORDS[2:15]))  # a space of another alphabet


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("What is $2 + 2$?", True),
        ("what is  2+2 .", True),
        ("What is $2 - 2$?", False),
        ("What is $2 \\cdot 2$?", False),
        ("What is 2 + 2 now?", False),
        ("So what is 2 + 2?", False),
    ],
)
def test_short_texts_are_compared_whole(text, same):
    assert bool(found(text, "What is $2+2$?")) == same


def test_a_short_evaluation_text_within_a_longer_one_is_no_overlap():
    assert not found(f"{ASKED} What is 2+2?", "What is 2+2?")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (r"\dfrac{1}{2} of x", r"\frac{1}{2} of $x$", True),
        (r"\frac{1}{2}", r"\frac{1}{3}", False),
        ("a well-known sum!", "A well known sum.", True),
        ("Find 5!.", "Find 5.", False),
        ("x - 1", "x \u2212 1", False),  # two different minus signs
        ("Is x < 3?", "Is x > 3?", False),
        ("x\u00b2 = 4", "x^2 = 4", False),
        ("\\text{Ann} has 3", "Ann has 3", True),
    ],
)
def test_what_makes_two_texts_the_same_problem(one, other, same):
    assert (whole_key(one) == whole_key(other)) == same


def test_every_overlapping_evaluation_problem_is_reported_once():
    index = OverlapIndex(
        {"a": [("1", ASKED), ("2", shares(15))], "b": [("1", ASKED), ("9", "other")]}
    )
    overlaps = index.find(ASKED)
    assert [(o.set, o.problem) for o in overlaps] == [
        ("a", "1"),
        ("b", "1"),
        ("a", "2"),
    ]


def test_a_run_of_words_that_many_problems_have_is_a_phrase():
    index = OverlapIndex({"quiz": [("q", f"How? {shares(14)}"), ("r", ASKED)]})
    texts = [f"{name} {shares(13)}" for name in "abc"]
    assert index.find_phrases([*texts, "other"], max_shared=3) == set()
    phrases = index.find_phrases([*texts, shares(14)], max_shared=3)
    # One more word makes other runs of thirteen; "x" is before all four.
    assert phrases == {" ".join(["x", *WORDS[4:16]]), " ".join(WORDS[4:17])}
    assert index.find(texts[0], phrases=phrases) == []
    assert index.find(ASKED, phrases=phrases)  # it shares other runs, and is equal
    assert index.find(shares(20, start=0), phrases=phrases)


def test_the_docstrings_say_what_happens():
    assert doctest.testmod(overlap).failed == 0


def test_words():
    assert split_words("It's 3.5\\,km, $x_1$!") == ["it", "s", "3", "5", "km", "x", "1"]
