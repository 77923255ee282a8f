"""Reward `correctness`: the verdict of the problem's verifier."""

from typing import ClassVar

from jaxtyping import Array, Bool, Float

from rlvr_jax.algorithms.reward import Reward
from rlvr_jax.algorithms.rewards import correctness_rewards


class Correctness(Reward):
    """1 correct, 0 incorrect, the group's mean where unverified."""

    is_verdict: ClassVar[bool] = True

    def to_rewards(
        self,
        scores: Float[Array, " P G"],
        correct: Bool[Array, " P G"],
        verified: Bool[Array, " P G"],
    ) -> Float[Array, " P G"]:
        """Returns `correctness_rewards`."""
        return correctness_rewards(correct, verified)

    def judges(
        self, scores: Float[Array, " P G"], verified: Bool[Array, " P G"]
    ) -> Bool[Array, " P G"]:
        """Returns the verified completions."""
        return verified
