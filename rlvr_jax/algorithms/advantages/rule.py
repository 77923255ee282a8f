"""The door for advantages: a rule turns the rewards of each group into advantages."""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from job_jax.registry import OpenSection, Registry, find_places
from job_jax.schema import PositiveFloat, check
from rlvr_jax.algorithms.advantages.groups import (
    clip_group_advantages,
    scale_by_confidence,
)

ADVANTAGES = Registry(
    "advantage rule",
    find_places("rlvr_jax.algorithms.advantages.rules"),
    {
        "grpo": "GRPO's advantages are the default, group_relative",
        "dr_grpo": "Dr. GRPO is name=group_relative with normalize=none",
        "gae": "there is no critic here, so no GAE",
    },
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardGroups:
    """The rewards of P problems with G completions each. Written by `rollouts.collect`.

    Where `judged` is False a completion has no reward of its own, and its advantage is
    0 whatever a rule returns. `lengths` count a completion's tokens. `pass_rate` is the
    posterior mean before these completions were sampled; for a problem outside the pool
    it is the prior's. `overhard` marks a pass rate below `difficulty.hard_below`, and
    `confidence` is the posterior probability that the true rate is not below it.
    """

    rewards: Float[Array, " P G"]
    judged: Bool[Array, " P G"]
    lengths: Int[Array, " P G"]
    pass_rate: Float[Array, " P"]
    overhard: Bool[Array, " P"]
    confidence: Float[Array, " P"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvantageRule(OpenSection):
    """How the rewards of a group become advantages, and a guard against luck.

    A subclass writes `advantages`; `train.advantage.name` takes one of ours or your
    own, as "package.module:Class", whose fields are its options.

    Example (`mine.py` next to the recipe, `--config.train.advantage.name=mine:Rare`):

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Rare(AdvantageRule):
            power: PositiveFloat = 0.5

            def advantages(self, groups):
                advantages_PG = group_advantages(groups.rewards, groups.judged)
                return groups.pass_rate[:, None] ** self.power * advantages_PG
    """

    registry: ClassVar[Registry] = ADVANTAGES
    earlier_tag: ClassVar[str] = "group_relative"  # before there was a choice
    reads_traces: ClassVar[bool] = False  # whether `trace_advantages` is defined

    # Limits advantages from lucky answers on over-hard problems
    overhard_advantage: Literal["off", "clip", "shrink"] = "off"
    overhard_clip: PositiveFloat = 1.0  # clip: largest advantage in an over-hard group

    def __post_init__(self) -> None:
        """Refuses a cap that has no effect."""
        super().__post_init__()
        check(
            self.overhard_advantage == "clip" or self.overhard_clip == 1.0,
            f"overhard_clip={self.overhard_clip} does nothing with "
            f"overhard_advantage={self.overhard_advantage}; set "
            "overhard_advantage=clip",
        )

    def advantages(self, groups: RewardGroups) -> Float[Array, " P G"]:
        """Returns the advantages [P, G], before the guard. Called inside jit."""
        raise NotImplementedError

    def trace_advantages(
        self, trace_rewards: Float[Array, " P"], groups: RewardGroups
    ) -> Float[Array, " P"]:
        """Returns the advantages of one external trace for each group, inside jit."""
        raise NotImplementedError

    def guarded_advantages(self, groups: RewardGroups) -> Float[Array, " P G"]:
        """Returns the advantages, 0 where not judged, with over-hard groups guarded."""
        advantages_PG = jnp.where(groups.judged, self.advantages(groups), 0.0)
        if self.overhard_advantage == "clip":
            return clip_group_advantages(
                advantages_PG, groups.overhard, max_abs=self.overhard_clip
            )
        if self.overhard_advantage == "shrink":
            return scale_by_confidence(advantages_PG, groups.confidence)
        return advantages_PG
