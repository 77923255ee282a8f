"""Reward `judge`: a language model's grade, from 0 to 1."""

from typing import ClassVar

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.rewards.function import score_by_calls


class Judge(Reward):
    """The judge's score, no opinion if it gives none."""

    verifiers: ClassVar[tuple[str, ...]] = ("judge",)

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns the replies to one request for each text. Raises CallError."""
        judge = completions.grader.open_verifier("judge")
        return score_by_calls("judge", judge.score, completions, judge.limits)
