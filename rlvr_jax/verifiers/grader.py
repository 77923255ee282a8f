"""Grades batches of completions, each by the verifier that its problem names."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from job_jax.calls import (
    CallLimits,
    Outcome,
    Settled,
    call_each,
    check_any_succeeded,
)
from job_jax.closing import Closing
from job_jax.processes import is_primary, map_across_processes, process_count
from rlvr_jax.config import VerifierConfig
from rlvr_jax.config.judge import JudgeConfig
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import Verifier, get_verifier
from rlvr_jax.verifiers.code import Code
from rlvr_jax.verifiers.confidence import strip_confidence
from rlvr_jax.verifiers.judge import JudgeVerifier
from rlvr_jax.verifiers.math import Item, MathVerifier


class Grader(Closing):
    """Grades completions by their problem's verifier; mathematics in worker processes.

    Programs run in a jail.
    Verifiers read a completion without the confidence that it states in tags.
    Each process of a run grades its share, and all get all verdicts.
    """

    def __init__(self, config: VerifierConfig, judge: JudgeConfig = JudgeConfig()):
        self.judge = JudgeVerifier(judge)
        self._pool = MathVerifier(config.workers, config.timeout_s, config.overdue_s)
        self.code = Code(config)
        self._limits = CallLimits(
            timeout_s=config.timeout_s, concurrency=config.concurrency
        )
        self._reported: set[str] = set()

    def __call__(
        self, problems: Sequence[Problem], completions: Sequence[str]
    ) -> list[Verdict]:
        """Returns a verdict on each completion of the problem beside it.

        Raises ConfigError where a problem names a verifier that does not exist, and
        CallError where one of a user's, or the judge, fails on all that it is given.
        """
        items = list(zip(problems, map(strip_confidence, completions), strict=True))

        def grade_share(own: Sequence[tuple[Problem, str]]) -> list[dict[str, Any]]:
            return [vars(verdict) for verdict in self._grade(own)]

        if process_count() == 1:
            verdicts = self._grade(items)
        else:
            shares = map_across_processes(items, grade_share)
            verdicts = [Verdict(**fields) for fields in shares]
        for name in sorted({problem.verifier for problem in problems}):
            if self._verifier(name).is_bounded:
                rows = [i for i, p in enumerate(problems) if p.verifier == name]
                self.check_failures(
                    f"verifier {name!r}",
                    [problems[i] for i in rows],
                    [verdicts[i] for i in rows],
                )
        return verdicts

    def _grade(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {}
        for name in dict.fromkeys(problem.verifier for problem, _ in items):
            verifier = self._verifier(name)
            rows = [
                i for i, (problem, _) in enumerate(items) if problem.verifier == name
            ]
            own = [items[i] for i in rows]
            if name == "code":
                graded = self.code.grade_all(own)
            elif verifier.pooled:
                graded = self._pool.grade_all(
                    [Item(p.gold, text, p.answer_format, name) for p, text in own]
                )
            elif verifier.is_bounded:
                limits = verifier.limits or self._limits
                graded = list(map(_to_verdict, call_each(verifier.grade, own, limits)))
            else:
                graded = [verifier.grade(*item) for item in own]  # type: ignore[misc]
            verdicts |= zip(rows, graded, strict=True)
        return [verdicts[i] for i in range(len(items))]

    def _verifier(self, name: str) -> Verifier:
        return self.judge if name == "judge" else get_verifier(name)

    def check_failures(
        self, name: str, problems: Sequence[Problem], settled: Sequence[Settled]
    ) -> None:
        """Prints the first failure of a run under this name; all must not have failed.

        Raises CallError where they have.
        """
        check_any_succeeded(name, settled)
        first = next((i for i, each in enumerate(settled) if each.failure), None)
        if first is None or name in self._reported:
            return
        self._reported.add(name)
        if is_primary():
            print(
                f"{name}: {settled[first].reason} (problem {problems[first].id}); such "
                "completions count as unverified, and this is the first",
                file=sys.stderr,
            )

    def invalid_golds(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Returns id -> reason of the problems whose gold nothing can be graded by.

        The gold itself, stated as the problem asks, must be correct, and an empty
        completion must be incorrect: equal texts are correct even where no other
        answer could be verified. Nor may its verifier find a fault with it. Verifiers
        without `checks_golds` are not asked.
        """
        problems = [p for p in problems if self._verifier(p.verifier).checks_golds]
        verifiers = [self._verifier(problem.verifier) for problem in problems]
        silent = self(problems, [""] * len(problems))
        stated = self(
            problems,
            [v.state_gold(p) for v, p in zip(verifiers, problems, strict=True)],
        )
        reasons = {
            problem.id: _gold_fault(empty, own) or verifier.describe_gold_fault(problem)
            for problem, verifier, empty, own in zip(
                problems, verifiers, silent, stated, strict=True
            )
        }
        return {name: reason for name, reason in reasons.items() if reason}

    def close(self) -> None:
        """Ends the worker processes, the jail and the judge's connections."""
        self._pool.close()
        self.code.close()
        self.judge.close()


def _gold_fault(empty: Verdict, own: Verdict) -> str:
    """Returns why a gold is of no use, by the verdicts on nothing and on itself."""
    if empty.status == "unverified":
        return empty.reason or "an empty completion is unverified"
    if empty.status == "correct":
        return "an empty completion is correct"
    if own.status != "correct":
        return own.reason or "the gold is not equal to itself"
    return ""


def _to_verdict(outcome: Outcome) -> Verdict:
    """Returns what a verifier returned; `unverified`, with the reason, if it failed."""
    verdict, failure, reason, seconds = outcome
    if failure is None and not isinstance(verdict, Verdict):
        failure, reason = "error", f"returned {verdict!r:.60}, which is no Verdict"
    if failure is not None:
        verdict = Verdict(status="unverified", reason=reason, failure=failure)
    return dataclasses.replace(verdict, seconds=seconds)
