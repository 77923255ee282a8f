"""Reward `random`, a control: a coin that knows nothing of the text."""

from typing import ClassVar

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.verifiers.controls import coin_flip


class Random(Reward):
    """0 or 1, a function of the seed, the problem and the sample's number."""

    pays_unfinished_thinking: ClassVar[bool] = True  # it reads no text

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns a coin flip for each completion."""
        G = completions.group_size
        return Scores(
            [
                float(coin_flip(completions.seed, problem.id, row % G))
                for row, problem in enumerate(completions.problems)
            ]
        )
