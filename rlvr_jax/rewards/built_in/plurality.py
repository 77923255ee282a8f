"""Rewards for agreement with the group: `plurality`, and one that pays errors."""

import collections
from collections.abc import Sequence
from typing import ClassVar

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import strip_confidence
from rlvr_jax.verifiers.truncation import reject_cut_answers


class Plurality(Reward):
    """1 for the most frequent answer of the group, else 0; it knows no gold.

    Answers are compared by value (`Verifier.answer_value`), and must have the form that
    the reward `format` asks for. If several answers are the most frequent, all of them
    earn 1 (ours; https://arxiv.org/abs/2504.16084 takes the first), so the order of a
    group does not matter. A completion without an answer does not vote and earns 0. If
    its verifier failed, it does not vote either and has no opinion. In a group of one,
    any answer earns 1.
    """

    is_verdict: ClassVar[bool] = True

    def may_earn(self, verdict: Verdict) -> bool:
        """Returns whether an answer votes and can win: any answer."""
        return True

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns whether each completion gives its group's most frequent answer."""
        verdicts = reject_cut_answers(
            completions.problems,
            completions.texts,
            completions.grader(completions.problems, completions.texts),
            was_cut=completions.was_cut,
        )
        triples = zip(completions.problems, completions.texts, verdicts, strict=True)
        answers = [
            read_answer(problem, text, verdict) if self.may_earn(verdict) else None
            for problem, text, verdict in triples
        ]
        G = completions.group_size
        scores = [
            score
            for start in range(0, len(answers), G)
            for score in score_agreement(answers[start : start + G])
        ]
        return Scores(
            [
                None if verdict.failure else score
                for score, verdict in zip(scores, verdicts, strict=True)
            ]
        )


class WrongPlurality(Plurality):
    """1 for the most frequent wrong answer of the group, else 0.

    A control: the policy's own errors are the labels. The labels of
    https://arxiv.org/abs/2506.10947 are a model's majority answers, on problems where
    these are wrong. Ours: each group votes again, and right answers do not vote.
    """

    def may_earn(self, verdict: Verdict) -> bool:
        """Returns whether the answer is wrong."""
        return verdict.status == "incorrect"


def read_answer(problem: Problem, text: str, verdict: Verdict) -> str | None:
    """Returns the value of a well-formed answer, None for any other completion."""
    verifier = get_verifier(problem.verifier)
    formed = verifier.is_well_formed(problem, strip_confidence(text))
    if verdict.failure or not formed:
        return None
    return verifier.answer_value(problem, verdict)


def score_agreement(answers: Sequence[str | None]) -> list[float]:
    """Returns 1 for each most frequent answer and 0 for others; None is no answer.

    >>> score_agreement(["3", "5", "3", None])
    [1.0, 0.0, 1.0, 0.0]
    """
    votes = collections.Counter(answer for answer in answers if answer is not None)
    most = max(votes.values(), default=0)
    return [float(answer is not None and votes[answer] == most) for answer in answers]
