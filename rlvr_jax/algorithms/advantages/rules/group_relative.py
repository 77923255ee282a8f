"""Advantages of GRPO, Dr. GRPO and RLOO: a reward compared with its group's."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from job_jax.schema import read_other_names
from rlvr_jax.algorithms.advantages.rule import AdvantageRule

if TYPE_CHECKING:  # a config loads without JAX
    from jaxtyping import Array, Float

    from rlvr_jax.types import RewardGroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupRelative(AdvantageRule):
    """(reward - baseline) / scale: see `group_advantages`.

    | algorithm | baseline   | normalize |
    |-----------|------------|-----------|
    | GRPO      | group_mean | group     |
    | Dr. GRPO  | group_mean | none      |
    | RLOO      | rloo       | none      |
    """

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        baseline="adv_estimator advantage_estimator",
        normalize="scale_rewards norm_adv normalise",
    )
    reads_traces: ClassVar[bool] = True

    baseline: Literal["group_mean", "rloo"] = "group_mean"  # rloo: mean of the others
    # Divide by the std of group or batch
    normalize: Literal["group", "batch", "none"] = "group"

    def advantages(self, groups: "RewardGroups") -> "Float[Array, ' P G']":
        """Returns `group_advantages` with these settings."""
        from rlvr_jax.algorithms.advantages.groups import (  # noqa: PLC0415
            group_advantages,
        )

        return group_advantages(
            groups.rewards,
            groups.judged,
            baseline=self.baseline,
            normalize=self.normalize,
        )

    def trace_advantages(
        self, trace_rewards: "Float[Array, ' P']", groups: "RewardGroups"
    ) -> "Float[Array, ' P']":
        """Returns `external_advantages` with these settings."""
        from rlvr_jax.algorithms.advantages.groups import (  # noqa: PLC0415
            external_advantages,
        )

        return external_advantages(
            trace_rewards, groups.rewards, groups.judged, normalize=self.normalize
        )
