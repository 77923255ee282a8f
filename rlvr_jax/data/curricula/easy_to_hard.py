"""A curriculum that moves from the easiest problems of the pool to the hardest."""

import dataclasses
from typing import ClassVar

import numpy as np

from job_jax.config import PositiveFraction
from rlvr_jax.data.curricula.base import (
    BatchIndices,
    Curriculum,
    DrawState,
    Source,
    pick_least_visited,
)
from rlvr_jax.data.difficulty import Difficulty


@dataclasses.dataclass(frozen=True, kw_only=True)
class EasyToHard(Curriculum):
    """A window over the pool, ranked from easy to hard, that slides over the run.

    The rank is by pass rate (before RL, or the posterior's mean), then by level, then
    by position in the pool: without estimates the levels alone decide.
    """

    reads_num_steps: ClassVar[bool] = True

    window_fraction: PositiveFraction = 0.5  # share of the pool that is eligible
    difficulty_source: Source = "initial"  # pass rate before RL; online: posterior

    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns problems of the window at this step."""
        size = difficulty.size
        if self.difficulty_source == "initial":
            attempts_N = np.maximum(difficulty.initial_attempts, 1)
            pass_rate_N = difficulty.initial_correct / attempts_N
        else:
            pass_rate_N = difficulty.mean
        rank_N = np.lexsort((np.arange(size), draw.read_levels(), -pass_rate_N))
        width = max(1, round(self.window_fraction * size))
        progress = draw.step / max(draw.num_steps - 1, 1)
        start = round(min(progress, 1.0) * (size - width))
        inside_N = np.zeros(size, bool)
        inside_N[rank_N[start : start + width]] = True
        return pick_least_visited(difficulty, inside_N, batch_size, draw)
