"""Learning from successes alone."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.algorithms.advantages.rules.group_relative import GroupRelative
from rlvr_jax.types import RewardGroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositiveOnly(GroupRelative):
    """The positive advantages of a group; the others are 0.

    Source: positive sample reinforcement, https://arxiv.org/abs/2506.01347. There a
    success earns 1 in every group. Here it earns its group-relative advantage, so a
    group of successes alone teaches nothing (ours).
    """

    reads_traces: ClassVar[bool] = False

    def advantages(self, groups: RewardGroups) -> Float[Array, " P G"]:
        """Returns max(A, 0) of the group-relative advantages A."""
        return jnp.maximum(super().advantages(groups), 0.0)
