"""Rewards that pay a dose of luck, and controls that pay wrong answers.

A worked answer, right with right steps, always earns 1. A lucky answer is right, but a
step is wrong or missing, or the steps start from a guess. Each class is a part of the
reward with its dose in the name (configs/paper/luck_dose.py):
--config.train.reward.names=rlvr_jax.tasks.finite_field.paid_luck:Luck25

Who is paid is a draw that depends on the run's seed, the problem, the completion's
place in its group, and its text. So a resumed run pays the same completions.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.tasks.finite_field.rewards import has_worked_steps
from rlvr_jax.tasks.finite_field.verifier import FiniteFieldVerifier
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.confidence import strip_confidence
from rlvr_jax.verifiers.controls import draw_fraction

AnswerKind = Literal["worked", "lucky", "wrong", "none", "unverified"]


class PaidLuck(Reward):
    """1 for a worked answer, and for a lucky one with probability `dose`."""

    is_verdict: ClassVar[bool] = True
    dose: ClassVar[float]

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns 1 for the paid completions and 0 for others, None if unverified."""
        kinds, draws = classify_answers(completions), _draw(completions)
        paid = {row for row, kind in enumerate(kinds) if kind == "worked"}
        G = completions.group_size
        for start in range(0, len(kinds), G):
            rows = range(start, start + G)
            lucky = [row for row in rows if kinds[row] == "lucky"]
            of_dose = [row for row in lucky if draws[row] < self.dose]
            wrong = [row for row in rows if kinds[row] == "wrong"]
            paid |= self.choose(of_dose, sorted(wrong, key=draws.__getitem__))
        return Scores(
            [
                None if kind == "unverified" else float(row in paid)
                for row, kind in enumerate(kinds)
            ]
        )

    def choose(self, of_dose: list[int], wrong: list[int]) -> set[int]:
        """Returns the rows of a group that are paid besides its worked answers.

        `of_dose` are the lucky answers that the dose pays; `wrong` are the wrong
        answers in random order.
        """
        return {*of_dose}


class PaidWrong(PaidLuck):
    """The control: for each lucky answer that the dose would pay, a wrong one is paid.

    So each group has as many rewards of 1 as under `PaidLuck`, and the same advantages
    on other completions. A wrong answer is paid with probability dose * lucky / wrong,
    where these are the group's counts. Completions that do not end in an answer are
    not paid, because lucky answers always end in one. A group with too few wrong
    answers pays fewer.
    """

    def choose(self, of_dose: list[int], wrong: list[int]) -> set[int]:
        """Returns the first wrong answers, as many as the dose pays lucky ones."""
        return {*wrong[: len(of_dose)]}


class Luck0(PaidLuck):
    """Pays no lucky answer."""

    dose: ClassVar[float] = 0.0


class Luck25(PaidLuck):
    """Pays a quarter of the lucky answers."""

    dose: ClassVar[float] = 0.25


class Luck50(PaidLuck):
    """Pays half of the lucky answers."""

    dose: ClassVar[float] = 0.5


class Luck100(PaidLuck):
    """Pays every right answer, as the reward `correctness` does."""

    dose: ClassVar[float] = 1.0


class Wrong25(PaidWrong):
    """Pays a wrong answer instead of each lucky one, for a quarter of them."""

    dose: ClassVar[float] = 0.25


class Wrong50(PaidWrong):
    """Pays a wrong answer instead of each lucky one, for half of them."""

    dose: ClassVar[float] = 0.5


class Wrong100(PaidWrong):
    """Pays a wrong answer instead of each lucky one."""

    dose: ClassVar[float] = 1.0


def classify_answers(completions: CompletionTexts) -> list[AnswerKind]:
    """Returns the kind of each completion's answer, "none" if it does not end in one.

    The length limit needs no rule: a numeral is one token, so it is never cut in two.
    """
    verdicts = completions.grader(completions.problems, completions.texts)
    triples = zip(completions.problems, completions.texts, verdicts, strict=True)
    return [_classify(problem, text, verdict) for problem, text, verdict in triples]


def _classify(problem: Problem, text: str, verdict: Verdict) -> AnswerKind:
    if verdict.status == "unverified":
        return "unverified"
    if verdict.status == "correct":
        return "worked" if has_worked_steps(problem, text) else "lucky"
    stated = FiniteFieldVerifier().is_well_formed(problem, strip_confidence(text))
    return "wrong" if stated and verdict.answer is not None else "none"


def _draw(completions: CompletionTexts) -> Sequence[float]:
    """Returns each completion's draw; its place is its number within its group."""
    pairs = zip(completions.problems, completions.texts, strict=True)
    return [
        draw_fraction(completions.seed, problem.id, row % completions.group_size, text)
        for row, (problem, text) in enumerate(pairs)
    ]
