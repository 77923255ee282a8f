"""Reward `confidence`: how well the stated confidence fits the verdict (RLCR)."""

from typing import ClassVar

from jaxtyping import Array, Bool, Float

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.algorithms.rewards import confidence_rewards
from rlvr_jax.verifiers.confidence import parse_confidence


class Confidence(Reward):
    """-(q - 1[correct])^2 for a stated confidence q, -1 without one."""

    is_verdict: ClassVar[bool] = True
    pays_unfinished_thinking: ClassVar[bool] = True  # it earns -1 there already

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns the stated q, None if a text states none."""
        return Scores([parse_confidence(text) for text in completions.texts])

    def to_rewards(
        self,
        scores: Float[Array, " P G"],
        correct: Bool[Array, " P G"],
        verified: Bool[Array, " P G"],
    ) -> Float[Array, " P G"]:
        """Returns `confidence_rewards`."""
        return confidence_rewards(scores, correct, verified)

    def judges(
        self, scores: Float[Array, " P G"], verified: Bool[Array, " P G"]
    ) -> Bool[Array, " P G"]:
        """Returns the verified completions, whether they state a confidence or not."""
        return verified
