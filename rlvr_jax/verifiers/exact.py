"""Verdicts by equality of text."""

from rlvr_jax.types import Verdict


def judge(gold: str, answer: str) -> Verdict:
    """Returns right where both texts are equal up to white space around them."""
    gold, answer = gold.strip(), answer.strip()
    if not gold:
        return Verdict(status="unjudged", reason="gold is empty")
    return Verdict(status="right" if answer == gold else "wrong", answer=answer)
