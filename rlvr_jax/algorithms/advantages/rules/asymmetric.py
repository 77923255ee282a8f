"""Successes and failures with their own weights."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from job_jax.schema import NonNegativeFloat, check
from rlvr_jax.algorithms.advantages.rules.group_relative import GroupRelative
from rlvr_jax.types import RewardGroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asymmetric(GroupRelative):
    """Group-relative advantages, each sign times its own weight.

    The default weighs successes 0.1, as weighted REINFORCE does
    (https://arxiv.org/abs/2506.01347, without a group's baseline). A rule is its mass
    on successes and on failures (https://arxiv.org/abs/2607.01490); this one sets both.
    """

    reads_traces: ClassVar[bool] = False

    positive_weight: NonNegativeFloat = 0.1  # factor of advantages above 0
    negative_weight: NonNegativeFloat = 1.0  # factor of advantages below 0

    def __post_init__(self) -> None:
        """Refuses two weights of 0, which teach nothing."""
        super().__post_init__()
        check(
            self.positive_weight > 0 or self.negative_weight > 0,
            "positive_weight=0 and negative_weight=0 make every advantage 0; raise one",
        )

    def advantages(self, groups: RewardGroups) -> Float[Array, " P G"]:
        """Returns the weighted group-relative advantages."""
        advantages_PG = super().advantages(groups)
        weight_PG = jnp.where(
            advantages_PG > 0, self.positive_weight, self.negative_weight
        )
        return weight_PG * advantages_PG
