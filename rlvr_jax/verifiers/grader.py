"""Grades batches of completions, each by the verifier that its problem names."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from job_jax.processes import map_across_processes, process_count
from rlvr_jax.config import VerifierConfig
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import strip_confidence
from rlvr_jax.verifiers.math import Item, MathVerifier


class Grader:
    """Grades completions by their problem's verifier; mathematics in worker processes.

    Verifiers read a completion without the confidence that it states in tags.
    Each process of a run grades its share, and all get all verdicts.
    """

    def __init__(self, config: VerifierConfig):
        self._pool = MathVerifier(config.workers, config.timeout_s)

    def __call__(
        self, problems: Sequence[Problem], completions: Sequence[str]
    ) -> list[Verdict]:
        """Returns a verdict on each completion of the problem beside it.

        Raises ConfigError where a problem names a verifier that does not exist.
        """
        items = list(zip(problems, map(strip_confidence, completions), strict=True))
        if process_count() == 1:
            return self._grade(items)

        def grade_share(own: Sequence[tuple[Problem, str]]) -> list[dict[str, Any]]:
            return [vars(verdict) for verdict in self._grade(own)]

        return [
            Verdict(**fields) for fields in map_across_processes(items, grade_share)
        ]

    def _grade(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        verifiers = [get_verifier(problem.verifier) for problem, _ in items]
        pooled_items = [
            Item(problem.gold, text, problem.answer_format, problem.verifier)
            for (problem, text), verifier in zip(items, verifiers, strict=True)
            if verifier.pooled
        ]
        pooled = iter(self._pool.grade_all(pooled_items) if pooled_items else ())
        return [
            next(pooled) if verifier.pooled else verifier.grade(problem, text)
            for (problem, text), verifier in zip(items, verifiers, strict=True)
        ]

    def invalid_golds(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Returns id -> reason of the problems whose gold nothing can be graded by.

        The gold itself, stated as the problem asks, must be correct, and an empty
        completion must be incorrect: equal texts are correct even where no other
        answer could be verified.
        """
        silent = self(problems, [""] * len(problems))
        stated = self(
            problems, [get_verifier(p.verifier).state_gold(p) for p in problems]
        )
        return {
            problem.id: verdict.reason or "the gold is not equal to itself"
            for problem, empty, own in zip(problems, silent, stated, strict=True)
            for verdict in [empty if empty.status == "unverified" else own]
            if verdict is empty or own.status != "correct"
        }

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    def __enter__(self) -> Self:
        """Returns the grader itself."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes, whatever happened."""
        self.close()
