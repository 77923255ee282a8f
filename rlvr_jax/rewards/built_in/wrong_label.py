"""Reward `wrong_label`, a control: agreement with a corrupted gold."""

import math
from typing import ClassVar

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.verifiers.controls import corrupt_gold
from rlvr_jax.verifiers.truncation import reject_cut_answers

_SCORE = {"correct": 1.0, "incorrect": 0.0, "unverified": math.nan}


class WrongLabel(Reward):
    """1 if the answer is the corrupted gold, 0 if not, no opinion if unverified."""

    is_verdict: ClassVar[bool] = True

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns the verdicts on the problems with corrupted golds, as numbers."""
        corrupted = [corrupt_gold(problem) for problem in completions.problems]
        verdicts = reject_cut_answers(
            corrupted,
            completions.texts,
            completions.grader(corrupted, completions.texts),
            was_cut=completions.was_cut,
        )
        return Scores([_SCORE[verdict.status] for verdict in verdicts])
