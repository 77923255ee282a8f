"""SIGNBALANCE: only the sign of an advantage counts, not how rare it is."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.algorithms.advantages.groups import group_advantages
from rlvr_jax.algorithms.advantages.rule import AdvantageRule
from rlvr_jax.types import RewardGroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignBalance(AdvantageRule):
    """+1 above the group's mean and -1 below it; the larger side is scaled to sum 0.

    One success in eight earns 1, as in any other group, and each failure -1/7; GRPO
    pays it 2.65. Seven successes in eight earn 1/7 each. The idea is from
    https://arxiv.org/abs/2609.04063, reported by readers; that the larger side is the
    one that is scaled is our reading.
    """

    def advantages(self, groups: RewardGroups) -> Float[Array, " P G"]:
        """Returns the balanced signs; 0 in groups without a signal."""
        advantage_PG = group_advantages(groups.rewards, groups.judged)
        # Rounding must not turn a reward at the group's mean into a whole sign.
        sign_PG = jnp.sign(jnp.where(jnp.abs(advantage_PG) > 1e-5, advantage_PG, 0.0))
        above_P1 = jnp.maximum(sign_PG, 0.0).sum(axis=1, keepdims=True)
        below_P1 = jnp.maximum(-sign_PG, 0.0).sum(axis=1, keepdims=True)
        smaller_P1 = jnp.minimum(above_P1, below_P1)
        side_PG = jnp.where(sign_PG > 0, above_P1, below_P1)
        return sign_PG * smaller_P1 / jnp.maximum(side_PG, 1.0)
