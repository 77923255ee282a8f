"""The door for advantages: a rule turns the rewards of each group into advantages."""

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Literal

from job_jax.registry import OpenSection, Registry, find_places
from job_jax.schema import PositiveFloat, check

if TYPE_CHECKING:  # a config loads without JAX
    from jaxtyping import Array, Float

    from rlvr_jax.types import RewardGroups

ADVANTAGES = Registry(
    "advantage rule",
    find_places("rlvr_jax.algorithms.advantages.rules"),
    {
        "grpo": "GRPO's advantages are the default, group_relative",
        "dr_grpo": "Dr. GRPO is name=group_relative with normalize=none",
        "gae": "GAE needs a critic, and runs here have none",
    },
)


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

    def advantages(self, groups: "RewardGroups") -> "Float[Array, ' P G']":
        """Returns the advantages [P, G], before the guard. Called inside jit."""
        raise NotImplementedError

    def trace_advantages(
        self, trace_rewards: "Float[Array, ' P']", groups: "RewardGroups"
    ) -> "Float[Array, ' P']":
        """Returns the advantages of one external trace for each group, inside jit."""
        raise NotImplementedError

    def guarded_advantages(self, groups: "RewardGroups") -> "Float[Array, ' P G']":
        """Returns the advantages, 0 where not judged, with over-hard groups guarded."""
        from rlvr_jax.algorithms.advantages.groups import (  # noqa: PLC0415
            clip_group_advantages,
            mask_unjudged,
            scale_by_confidence,
        )

        advantages_PG = mask_unjudged(self.advantages(groups), groups.judged)
        if self.overhard_advantage == "clip":
            return clip_group_advantages(
                advantages_PG, groups.overhard, max_abs=self.overhard_clip
            )
        if self.overhard_advantage == "shrink":
            return scale_by_confidence(advantages_PG, groups.confidence)
        return advantages_PG
