"""Learning from failures alone."""

import dataclasses
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.algorithms.advantages.groups import group_advantages
from rlvr_jax.algorithms.advantages.rule import AdvantageRule
from rlvr_jax.types import RewardGroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class NegativeOnly(AdvantageRule):
    """The negative advantages of a group; the others are 0.

    Source: negative sample reinforcement, https://arxiv.org/abs/2506.01347. There a
    failure costs 1 in every group. Here it costs its group-relative advantage, so a
    group of failures alone teaches nothing (ours).
    """

    # Divide by the std of group or batch
    normalize: Literal["group", "batch", "none"] = "group"

    def advantages(self, groups: RewardGroups) -> Float[Array, " P G"]:
        """Returns min(A, 0) of the group-relative advantages A."""
        advantages_PG = group_advantages(
            groups.rewards, groups.judged, normalize=self.normalize
        )
        return jnp.minimum(advantages_PG, 0.0)
