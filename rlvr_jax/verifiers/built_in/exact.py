"""The verifier `exact`: equality of text."""

from typing import ClassVar

from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers.statements import extract_marked_answer
from rlvr_jax.verifiers.base import Verifier


class Exact(Verifier):
    """Compares texts, ignoring white space around them.

    With answer_format "boxed" or "tagged" the answer is the text in the box or tag,
    otherwise the whole completion.
    """

    reads_answer_format: ClassVar[bool] = True
    reads_whole_text: ClassVar[bool] = True
    is_bounded: ClassVar[bool] = False

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Returns correct if answer and gold are the same text."""
        gold = problem.gold.strip()
        if not gold:
            return Verdict(status="unverified", reason="gold is empty")
        answer: str | None = completion.strip()
        if problem.answer_format != "any":
            answer = extract_marked_answer(completion, problem.answer_format)
        if answer is None:
            return Verdict(status="incorrect", reason="no final answer")
        if answer != gold:
            return Verdict(status="incorrect", answer=answer)
        return Verdict(status="correct", answer=answer)

    def is_cut(self, problem: Problem, completion: str) -> bool:
        """Returns whether the answer is the whole text, which then ends at the cut."""
        return problem.answer_format == "any" and bool(completion.strip())
