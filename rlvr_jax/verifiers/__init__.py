"""Text -> verdict: right, wrong, or could not judge."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from job_jax.processes import count, divided
from rlvr_jax.answers import stated_answer
from rlvr_jax.config import VerifierConfig
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers import exact, finite_field
from rlvr_jax.verifiers.math import Item, MathVerifier

POOLED = ("math", "numeric")  # kinds that worker processes judge


class Judge:
    """Judges completions by their problem's kind; mathematics in worker processes.

    Each process of a run judges its share, and all know all verdicts.
    """

    def __init__(self, config: VerifierConfig):
        self._pool = MathVerifier(config.workers, config.timeout_s)

    def __call__(
        self, problems: Sequence[Problem], completions: Sequence[str]
    ) -> list[Verdict]:
        """Returns a verdict on each completion of the problem beside it."""
        asked = list(zip(problems, completions, strict=True))
        if count() == 1:
            return self._judged(asked)

        def judge(own: Sequence[tuple[Problem, str]]) -> list[dict[str, Any]]:
            return [vars(verdict) for verdict in self._judged(own)]

        return [Verdict(**told) for told in divided(asked, judge)]

    def _judged(self, asked: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        items = [
            Item(problem.gold, text, problem.answer_form, problem.kind)
            for problem, text in asked
            if problem.kind in POOLED
        ]
        pooled = iter(self._pool.judge_all(items) if items else ())
        return [
            next(pooled) if problem.kind in POOLED else judge_here(problem, text)
            for problem, text in asked
        ]

    def unreadable(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Returns id -> reason of the problems whose gold cannot be judged against.

        A gold must be right against itself, stated in the problem's own form, and a
        completion that says nothing must be wrong: equal texts are right even where
        no other answer could be judged.
        """
        silent = self(problems, [""] * len(problems))
        stated = self(problems, [_stating(problem) for problem in problems])
        return {
            problem.id: verdict.reason or "the gold is not equal to itself"
            for problem, empty, own in zip(problems, silent, stated, strict=True)
            for verdict in [empty if empty.status == "unjudged" else own]
            if verdict is empty or own.status != "right"
        }

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    def __enter__(self) -> Self:
        """Returns the judge itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes, whatever happened."""
        self.close()


def judge_here(problem: Problem, completion: str) -> Verdict:
    """Returns the verdict of a kind that needs no worker process."""
    if problem.kind == "exact":
        return exact.judge(problem.gold, completion, problem.answer_form)
    return finite_field.judge(problem, completion)


def _stating(problem: Problem) -> str:
    """Returns a completion that states the problem's own gold as it asks for it."""
    gold = stated_answer(problem.gold) or problem.gold
    if problem.kind == "finite_field":
        return f"answer {gold}"
    if problem.answer_form == "tagged":
        return f"<answer>{gold}</answer>"
    if problem.kind == "exact" and problem.answer_form == "any":
        return problem.gold
    return f"\\boxed{{{gold}}}"
