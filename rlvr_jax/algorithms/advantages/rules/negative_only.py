"""Learning from failures alone."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.algorithms.advantages.rules.group_relative import GroupRelative
from rlvr_jax.types import RewardGroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class NegativeOnly(GroupRelative):
    """The negative advantages of a group; the others are 0.

    Source: negative sample reinforcement, https://arxiv.org/abs/2506.01347. There a
    failure costs 1 in every group. Here it costs its group-relative advantage, so a
    group of failures alone teaches nothing (ours).
    """

    reads_traces: ClassVar[bool] = False

    def advantages(self, groups: RewardGroups) -> Float[Array, " P G"]:
        """Returns min(A, 0) of the group-relative advantages A."""
        return jnp.minimum(super().advantages(groups), 0.0)
