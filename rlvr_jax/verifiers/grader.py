"""Grades batches of completions, each with the verifier that its problem names."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from job_jax.calls import CallError, CallLimits, Settled, check_any_succeeded
from job_jax.closing import Closing
from job_jax.processes import is_primary, map_across_processes, process_count
from rlvr_jax.config import VerifierConfig
from rlvr_jax.config.judge import JudgeConfig
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import GradingSession, Verifier, get_verifier
from rlvr_jax.verifiers.confidence import strip_confidence


def describe_fields(problem: Problem, error: object) -> str:
    """Returns the fields that a problem has, after a KeyError; else ""."""
    if "KeyError" not in repr(error):
        return ""
    return (
        f"; the fields of problem {problem.id!r} are "
        f"{', '.join(problem.fields) or 'none'} (task.record.extra_fields=*,NAME adds "
        "one that a setting reads)"
    )


class Grader(Closing):
    """Grades each completion with its problem's verifier.

    Each verifier is opened when it is first needed (`Verifier.open`). All of them read
    a completion without its <confidence> tags. Each process of a run grades its
    share, and every process gets all verdicts.
    """

    def __init__(self, config: VerifierConfig, judge: JudgeConfig = JudgeConfig()):
        self._session = GradingSession(
            config=config,
            judge=judge,
            limits=CallLimits(
                timeout_s=config.timeout_s, concurrency=config.concurrency
            ),
            share=self._share,
        )
        self._opened: dict[str, Verifier] = {}
        self._shared: dict[str, Any] = {}
        self._reported: set[str] = set()

    def __call__(
        self, problems: Sequence[Problem], completions: Sequence[str]
    ) -> list[Verdict]:
        """Returns a verdict on each completion, for the problem at the same index.

        Raises ConfigError if a problem names an unknown verifier. Raises CallError if
        the judge or a user's verifier fails on all of its completions.
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
            if self.open_verifier(name).is_bounded:
                rows = [i for i, p in enumerate(problems) if p.verifier == name]
                self.check_failures(
                    f"verifier {name!r}",
                    [problems[i] for i in rows],
                    [verdicts[i] for i in rows],
                )
        return verdicts

    def _grade(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Returns the best verdict that any of a problem's golds gives.

        Correct is better than unverified, which is better than incorrect.
        """
        by_gold = [self._by_gold(problem) for problem, _ in items]
        texts = [text for _, text in items]
        verdicts = self._grade_once(
            [(golds[0], text) for golds, text in zip(by_gold, texts, strict=True)]
        )
        for n in range(1, max(map(len, by_gold), default=0)):
            rows = [
                i
                for i, verdict in enumerate(verdicts)
                if n < len(by_gold[i]) and verdict.status != "correct"
            ]
            others = self._grade_once([(by_gold[i][n], texts[i]) for i in rows])
            for i, other in zip(rows, others, strict=True):
                verdicts[i] = max(verdicts[i], other, key=_rank)
        return verdicts

    def _by_gold(self, problem: Problem) -> tuple[Problem, ...]:
        """Returns the problem once for each gold that `grade` must be called with."""
        reads_all = self.open_verifier(problem.verifier).reads_other_golds
        return (problem,) if reads_all else problem.by_gold()

    def _grade_once(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {}
        for name in dict.fromkeys(problem.verifier for problem, _ in items):
            verifier = self.open_verifier(name)
            rows = [
                i for i, (problem, _) in enumerate(items) if problem.verifier == name
            ]
            own = [items[i] for i in rows]
            graded = verifier.grade_batch(own, self._session.limits)
            verdicts |= zip(rows, graded, strict=True)
        return [verdicts[i] for i in range(len(items))]

    def open_verifier(self, name: str) -> Verifier:
        """Returns the verifier with this name, opened once for this grader.

        Raises ConfigError if the name is unknown.
        """
        if name not in self._opened:
            self._opened[name] = get_verifier(name).open(self._session)
        return self._opened[name]

    def _share(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def check_failures(
        self, name: str, problems: Sequence[Problem], settled: Sequence[Settled]
    ) -> None:
        """Prints the run's first failure under this name. CallError if all failed."""
        first = next((i for i, each in enumerate(settled) if each.failure), None)
        if first is None:
            return
        hint = describe_fields(problems[first], settled[first].reason)
        try:
            check_any_succeeded(name, settled)
        except CallError as error:
            raise CallError(f"{error}{hint}") from error
        if name in self._reported:
            return
        self._reported.add(name)
        if is_primary():
            print(
                f"{name}: {settled[first].reason} (problem {problems[first].id}); such "
                f"completions count as unverified; only the first is shown{hint}",
                file=sys.stderr,
            )

    def invalid_golds(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Returns id -> reason for the problems whose gold cannot grade anything.

        A usable gold is correct itself, stated in the problem's answer format, and an
        empty completion is incorrect. Its verifier must also find no fault with it,
        because equal texts are correct even if no other answer can be verified.
        If one of several golds is not usable, the problem is not either. Verifiers
        without `checks_golds` are skipped.
        """
        checked = [p for p in problems if self.open_verifier(p.verifier).checks_golds]
        owners = [owner for owner in checked for _ in self._by_gold(owner)]
        problems = [problem for owner in checked for problem in self._by_gold(owner)]
        verifiers = [self.open_verifier(problem.verifier) for problem in problems]
        silent = self(problems, [""] * len(problems))
        stated = self(
            problems,
            [v.state_gold(p) for v, p in zip(verifiers, problems, strict=True)],
        )
        reasons: dict[str, str] = {}
        for owner, problem, verifier, empty, own in zip(
            owners, problems, verifiers, silent, stated, strict=True
        ):
            fault = _gold_fault(empty, own, verifier.state_gold(problem))
            fault = fault or verifier.describe_gold_fault(problem)
            if fault:
                which = f"gold {problem.gold!r:.60}: " if owner.other_golds else ""
                reasons.setdefault(owner.id, which + fault)
        return reasons

    def close(self) -> None:
        """Ends the verifiers' processes and connections; later calls start new ones."""
        for resource in (*self._opened.values(), *self._shared.values()):
            resource.close()


def _gold_fault(empty: Verdict, own: Verdict, stated: str) -> str:
    """Returns why a gold is useless, by the verdicts on an empty text and on itself.

    `stated` is the completion that states the gold.
    """
    if empty.status == "unverified":
        return empty.reason or "an empty completion is unverified"
    if empty.status == "correct":
        return "an empty completion is correct"
    if own.status != "correct":
        return own.reason or (
            f"it finds {stated!r:.60} wrong, which is how state_gold writes the gold"
        )
    return ""


def _rank(verdict: Verdict) -> int:
    return ("incorrect", "unverified", "correct").index(verdict.status)
