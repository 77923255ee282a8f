"""A curriculum of the problems closest to a given pass rate."""

import dataclasses

import numpy as np

from job_jax.schema import UnitInterval
from rlvr_jax.data.curricula.adaptive import EpsilonUniform
from rlvr_jax.data.curricula.base import BatchIndices, DrawState, repeat_to_size
from rlvr_jax.data.difficulty import Difficulty


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetPassRate(EpsilonUniform):
    """The problems whose posterior mean is closest to a pass rate; ties at random.

    Problems that mostly got no verdict come last: their mean stays near the prior's
    mean, even if their pass rate does not.
    """

    target_pass_rate: UnitInterval = 0.5  # the closest problems are sampled

    def pick_problems(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the `batch_size` closest problems."""
        ties_N = draw.rng.permutation(difficulty.size)
        distance_N = np.abs(difficulty.mean - self.target_pass_rate)
        ranked = np.lexsort((ties_N, distance_N, difficulty.seldom_judged, draw.asked))
        return BatchIndices(problems=repeat_to_size(ranked, batch_size))
