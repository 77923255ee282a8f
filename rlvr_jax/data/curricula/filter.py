"""A curriculum of problems whose estimated pass rate lies within bounds."""

import dataclasses

from job_jax.schema import UnitInterval, check
from rlvr_jax.data.curricula.adaptive import EpsilonUniform
from rlvr_jax.data.curricula.base import BatchIndices, DrawState, pick_least_visited
from rlvr_jax.data.difficulty import Difficulty


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassRateFilter(EpsilonUniform):
    """Problems whose posterior mean lies within bounds, and problems never tried.

    Online difficulty filtering (https://arxiv.org/abs/2504.03380), with the estimates
    before the step. Problems that mostly got no verdict are left out, because their
    mean says little.
    """

    min_pass_rate: UnitInterval = 0.2  # problems below are left out
    max_pass_rate: UnitInterval = 0.8  # problems above are left out

    def __post_init__(self) -> None:
        """Refuses bounds with nothing between them."""
        super().__post_init__()
        check(
            self.min_pass_rate <= self.max_pass_rate,
            f"min_pass_rate={self.min_pass_rate} is above max_pass_rate="
            f"{self.max_pass_rate}; lower it, or raise max_pass_rate",
        )

    def pick_problems(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns problems within the bounds, the least visited first."""
        mean_N = difficulty.mean
        inside_N = (self.min_pass_rate <= mean_N) & (mean_N <= self.max_pass_rate)
        eligible_N = inside_N & ~difficulty.seldom_judged | (difficulty.num_visits == 0)
        return pick_least_visited(difficulty, eligible_N, batch_size, draw)
