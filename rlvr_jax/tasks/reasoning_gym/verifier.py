"""The verifier `reasoning_gym`: grades with the library's own scorer."""

from typing import ClassVar

from job_jax.calls import CallLimits, call_each
from rlvr_jax.tasks.reasoning_gym.entries import Entry, parse_id
from rlvr_jax.tasks.reasoning_gym.library import (
    Item,
    library_version,
    make_item,
    score_answer,
)
from rlvr_jax.tasks.reasoning_gym.plain_answers import describe_unsafe_answer
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers.limits import MAX_COMPLETION_CHARACTERS
from rlvr_jax.verifiers.answers.statements import extract_answer, extract_marked_answer
from rlvr_jax.verifiers.base import Verifier

_LIMITS = CallLimits(timeout_s=5.0)  # per score; all but a few take a millisecond


class ReasoningGymVerifier(Verifier):
    """Remakes the problem from its id, and lets its generator score the answer.

    Only a score of exactly 1 is correct, because the library gives partial credit if a
    longer answer contains the gold. If the scorer raises, or takes over five seconds,
    the answer is incorrect. An unverified one would earn its group's mean, and a policy
    would learn to write such answers.
    """

    is_bounded: ClassVar[bool] = False  # it bounds the score itself

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Returns correct if the generator gives the answer its full score.

        Returns unverified if the installed library makes another problem from the id. A
        gold that is not the generator's own (a control reward) is compared as text.
        """
        text = completion[-MAX_COMPLETION_CHARACTERS:]
        # A marked answer is scored as it is: prose around a value is wrong here.
        answer = extract_marked_answer(text, problem.answer_format)
        if answer is None:
            answer = extract_answer(text, problem.answer_format)
        if not answer:
            return Verdict(status="incorrect", reason="no final answer")
        entry, place = parse_id(problem.id)
        item = make_item(entry, place)
        if item.question.strip() not in problem.prompt:
            return Verdict(
                status="unverified",
                reason=f"reasoning-gym {library_version()} makes another problem from "
                "this id; install the version that made the problem",
            )
        if problem.gold != item.gold:
            is_equal = answer == problem.gold
            return Verdict(status="correct" if is_equal else "incorrect", answer=answer)
        return _score(entry, item, answer)

    def state_gold(self, problem: Problem) -> str:
        """Returns the gold in the problem's answer format."""
        if problem.answer_format == "boxed":
            return f"\\boxed{{{problem.gold}}}"
        return f"<answer>{problem.gold}</answer>"


def _score(entry: Entry, item: Item, answer: str) -> Verdict:
    if reason := describe_unsafe_answer(entry.name, answer):
        return Verdict(status="incorrect", reason=reason, answer=answer)
    (outcome,) = call_each(score_answer, [(entry, item, answer)], _LIMITS)
    if outcome.failure is not None:
        return Verdict(
            status="incorrect",
            reason=f"the scorer of {entry.name}: {outcome.reason}",
            answer=answer,
            failure=outcome.failure,
        )
    score = outcome.value
    if score == 1:
        return Verdict(status="correct", answer=answer)
    return Verdict(status="incorrect", reason=f"score {score:.3g}", answer=answer)
