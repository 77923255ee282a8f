"""Answers at the cut of the length limit: which ones count, format by format."""

import pytest

from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers.cut import touches_end
from rlvr_jax.verifiers.answers.statements import extract_answer
from rlvr_jax.verifiers.base import VERIFIERS, get_verifier
from rlvr_jax.verifiers.truncation import CUT_REASON, reject_cut_answers

OPEN_ENDED = [
    "The answer is 12",
    "The answer is 12 ",
    "The answer is 12.",  # 12.5
    "The answer is 12,",  # 12,500
    "The answer is 12, ",
    "The answer is 12 and",  # 12 and 13
    "The answer is 12:",  # 12:30
    "The answer is 12%",
    "The answer is 12 mill",
    "The answer is 12 h",
    "The answer is $12",
    "The answer is \\(12",
    "The answer is **12",
    "The answer is \\frac{1}{2}",
    "The answer is x + y",
    "The answer is Par",
    "#### 12",
    "3 + 9 = 12",
    "First 3 apples, then 4. In all 12",
    "In all 12 or",
    "12",
]
CLOSED = [
    "The answer is 12. ",
    "The answer is 12.\n",
    "The answer is 12\n",
    "The answer is 12. So",
    "The answer is 12 apples",
    "The answer is 12 apples.",
    "The answer is 12, because 3 + 9",
    "The answer is $12$",
    "The answer is \\(12\\)",
    "The answer is **12**",
    "\\[ x = 12 \\]",
    "We get $$12$$",
    "#### 12\n",
    "#### 12\nand so",
    "In all 12 apples, and then we",
    "We get \\boxed{12}",
    "\\boxed{12} and then 3 + 4 = 7",
    "<answer>12</answer>",
    "<answer>12</answer> or maybe 7",
    "<answer>12</answer> \\boxed{7",
    "",
    "There is nothing here",
]


@pytest.mark.parametrize("text", OPEN_ENDED)
def test_an_answer_that_may_continue_touches_the_end(text):
    assert touches_end(text)


@pytest.mark.parametrize("text", CLOSED)
def test_an_answer_that_is_closed_does_not(text):
    assert not touches_end(text)


def test_every_beginning_of_a_long_answer_touches_until_it_is_closed():
    """Cut at any character, 12,345.75 is never taken for a shorter answer."""
    text = "The answer is 12,345.75. "
    for length in range(len("The answer is 1"), len(text)):
        assert touches_end(text[:length]), text[:length]
    assert not touches_end(text)


@pytest.mark.parametrize(
    "text", ["\\boxed{12}", "<answer>12</answer>", "\\boxed{12", "<answer>12</ans"]
)
@pytest.mark.parametrize("form", ["boxed", "tagged"])
def test_boxes_and_tags_are_read_only_where_they_are_complete(text, form):
    assert not touches_end(text, form)
    is_complete = text.endswith(("}", ">")) and ("box" in text) == (form == "boxed")
    assert extract_answer(text, form) == ("12" if is_complete else "")


def _problem(verifier="math", form="any"):
    return Problem(
        id="a",
        prompt="?",
        gold="12",
        verifier=verifier,
        source="t",
        answer_format=form,
    )


def _rejected(text, *, was_cut=True, status="correct", **problem):
    verdict = Verdict(status=status, answer="12", reason="before")
    (found,) = reject_cut_answers(
        [_problem(**problem)], [text], [verdict], was_cut=[was_cut]
    )
    assert found == verdict or found == Verdict(status="incorrect", reason=CUT_REASON)
    return found != verdict


@pytest.mark.parametrize("verifier", ["math", "numeric"])
def test_a_cut_answer_is_incorrect_and_no_answer(verifier):
    assert _rejected("The answer is 12", verifier=verifier)
    assert _rejected("The answer is 12", verifier=verifier, status="incorrect")
    assert not _rejected("The answer is 12. ", verifier=verifier)
    assert not _rejected("The answer is 12", verifier=verifier, was_cut=False)
    assert not _rejected("The answer is 12", verifier=verifier, status="unverified")
    assert not _rejected("\\boxed{12}", verifier=verifier, form="boxed")


def test_exact_reads_the_whole_text_which_ends_at_the_cut():
    assert _rejected("12", verifier="exact")
    assert _rejected("12.\n", verifier="exact")
    assert not _rejected("<answer>12</answer>", verifier="exact", form="tagged")
    assert not _rejected("\\boxed{12}", verifier="exact", form="boxed")


def test_other_verifiers_read_by_rules_of_their_own():
    """A program is right if it passes its tests; a numeral must end the text."""
    for name in set(VERIFIERS.names) - {"math", "numeric", "exact"}:
        assert not get_verifier(name).is_cut(_problem(name), "answer 12")


def test_a_confidence_behind_the_answer_closes_it():
    assert not _rejected("The answer is 12 <confidence>0.8</confidence>")
    assert not _rejected("The answer is 12 <confidence>0.")
    assert _rejected("<confidence>0.8</confidence> The answer is 12")
