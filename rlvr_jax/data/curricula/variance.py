"""A curriculum that draws problems in proportion to their expected learning signal."""

import dataclasses

from rlvr_jax.data.curricula.adaptive import EpsilonUniform
from rlvr_jax.data.curricula.base import (
    BatchIndices,
    DrawState,
    move_last,
    repeat_to_size,
    sample_without_replacement,
)
from rlvr_jax.data.difficulty import Difficulty


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variance(EpsilonUniform):
    """Problems drawn in proportion to the posterior's mean of p (1 - p).

    The learning signal of a group is bounded below by p (1 - p) / (2 beta^2)
    (https://arxiv.org/abs/2504.03380). A problem never tried has the prior's mean.
    Problems that mostly got no verdict are drawn last. Draws are without replacement:
    each is proportional among the problems left.
    """

    def pick_problems(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns `batch_size` draws."""
        drawn = sample_without_replacement(difficulty.learning_signal, draw.rng)
        ranked = move_last(move_last(drawn, difficulty.seldom_judged), draw.asked)
        return BatchIndices(problems=repeat_to_size(ranked, batch_size))
