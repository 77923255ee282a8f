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
    move_last,
    repeat_to_size,
)
from rlvr_jax.data.difficulty import Difficulty


@dataclasses.dataclass(frozen=True, kw_only=True)
class EasyToHard(Curriculum):
    """A window over the pool, ranked from easy to hard, that slides over the run.

    Rows are drawn at random from the whole window. (The least visited would be those
    that have just entered it, at its hard edge.)

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
        shuffled_W = draw.rng.permutation(rank_N[start : start + width])
        return BatchIndices(
            problems=repeat_to_size(move_last(shuffled_W, draw.asked), batch_size)
        )
