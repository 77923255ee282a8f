"""Reward `judge`: a language model's grade, from 0 to 1."""

import contextlib
from typing import Any

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.rewards.function import score_by_calls
from rlvr_jax.verifiers.judge import JudgeVerifier


class Judge(Reward):
    """The judge's score, no opinion if it gives none."""

    def check_ready(self, config: Any) -> None:
        """Tests the judge with one request. Raises CallError."""
        with contextlib.closing(JudgeVerifier(config.judge)) as judge:
            judge.check_ready()

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns the replies to one request for each text. Raises CallError."""
        judge = completions.grader.open_verifier("judge")
        return score_by_calls("judge", judge.score, completions, judge.limits)
