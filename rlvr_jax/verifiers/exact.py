"""Verdicts by equality of text."""

from rlvr_jax.answers import stated_answer
from rlvr_jax.types import AnswerForm, Verdict


def judge(gold: str, answer: str, form: AnswerForm = "any") -> Verdict:
    """Returns right where both texts are equal up to white space around them.

    With the form "boxed" or "tagged" the answer is what stands there, not all of it.
    """
    gold = gold.strip()
    if not gold:
        return Verdict(status="unjudged", reason="gold is empty")
    given = answer.strip() if form == "any" else stated_answer(answer, form)
    if given is None:
        return Verdict(status="wrong", reason="no final answer")
    return Verdict(status="right" if given == gold else "wrong", answer=given)
