"""Advantages: what each completion is worth compared with its group."""

from rlvr_jax.algorithms.advantages.groups import (
    clip_group_advantages,
    external_advantages,
    group_advantages,
    has_signal,
    scale_by_confidence,
)
from rlvr_jax.algorithms.advantages.rule import AdvantageRule, RewardGroups
from rlvr_jax.algorithms.advantages.rules.group_relative import (
    GroupRelative as AdvantageConfig,
)

__all__ = [
    "AdvantageConfig",
    "AdvantageRule",
    "RewardGroups",
    "clip_group_advantages",
    "external_advantages",
    "group_advantages",
    "has_signal",
    "scale_by_confidence",
]
