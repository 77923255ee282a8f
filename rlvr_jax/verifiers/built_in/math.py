"""The verifier `math`: equality of formulas, judged by the processes of `math_pool`."""

from collections.abc import Sequence
from typing import ClassVar, cast

from job_jax.calls import CallLimits
from rlvr_jax.types import Problem, Verdict, VerdictStatus
from rlvr_jax.verifiers import math_worker
from rlvr_jax.verifiers.answers.cut import touches_end
from rlvr_jax.verifiers.answers.limits import MAX_COMPLETION_CHARACTERS
from rlvr_jax.verifiers.answers.prose import describe_prose
from rlvr_jax.verifiers.answers.statements import extract_marked_answer
from rlvr_jax.verifiers.answers.values import write_normal_form
from rlvr_jax.verifiers.base import GradingSession, Verifier
from rlvr_jax.verifiers.math_pool import Item, MathPool


class Math(Verifier):
    """Grades final answers by mathematical equality.

    An opened one grades in worker processes, which all mathematics of a run shares.
    """

    reads_answer_format: ClassVar[bool] = True
    is_bounded: ClassVar[bool] = False  # the workers have their own limits
    _name: ClassVar[str] = "math"

    def __init__(self, pool: MathPool | None = None) -> None:
        self._pool = pool

    def open(self, session: GradingSession) -> Verifier:
        """Returns a verifier that uses the session's worker processes."""
        config = session.config
        pool = session.share(
            "math",
            lambda: MathPool(config.workers, config.timeout_s, config.overdue_s),
        )
        return type(self)(pool)

    def grade_batch(
        self, items: Sequence[tuple[Problem, str]], limits: CallLimits
    ) -> list[Verdict]:
        """Returns the worker processes' verdicts; they have their own limits."""
        if self._pool is None:
            return super().grade_batch(items, limits)
        return self._pool.grade_all(
            [Item(p.gold, text, p.answer_format, self._name) for p, text in items]
        )

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Returns the verdict, computed in this process and without a time limit.

        Runs grade through `Grader`, whose worker processes have a limit.
        """
        status, reason, answer = math_worker.grade(
            problem.gold, completion, problem.answer_format, self._name
        )
        return Verdict(status=cast(VerdictStatus, status), reason=reason, answer=answer)

    def describe_gold_fault(self, problem: Problem) -> str:
        """Returns why the gold is a sentence or a number in words, "" if it is not."""
        gold = extract_marked_answer(problem.gold)
        return describe_prose(problem.gold if gold is None else gold)

    def answer_value(self, problem: Problem, verdict: Verdict) -> str | None:
        """Returns the answer's normal form; all correct answers have the gold's.

        Equal wrong answers share it if their text shows that they are equal: 1/2 and
        0.5, but not 2(x + 1) and 2x + 2.
        """
        if verdict.answer is None or verdict.status == "correct":
            gold = extract_marked_answer(problem.gold) or problem.gold
            return None if verdict.answer is None else write_normal_form(gold)
        return write_normal_form(verdict.answer)

    def is_cut(self, problem: Problem, completion: str) -> bool:
        """Returns whether the answer touches the end (`answers.cut`)."""
        return touches_end(
            completion[-MAX_COMPLETION_CHARACTERS:], problem.answer_format
        )
