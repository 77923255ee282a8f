"""A curriculum that repeats forgotten problems."""

import dataclasses

import numpy as np

from job_jax.schema import UnitInterval
from rlvr_jax.data.curricula.base import (
    BatchIndices,
    Curriculum,
    DrawState,
    pick_least_visited,
)
from rlvr_jax.data.difficulty import Difficulty


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replay(Curriculum):
    """Reserves rows for forgotten problems: solved once, but not at the last visit.

    The other rows come from the rest of the pool. All rows do once the step has sampled
    every forgotten problem.
    """

    replay_fraction: UnitInterval = 0.25  # of the batch, at most

    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the forgotten problems, then others."""
        rng = draw.rng
        forgotten = np.flatnonzero(difficulty.is_forgotten & ~draw.asked)
        replayed = rng.permutation(forgotten)[: int(self.replay_fraction * batch_size)]
        others_N = np.ones(difficulty.size, bool)
        others_N[replayed] = False
        rest = pick_least_visited(
            difficulty, others_N, batch_size - len(replayed), draw, rng=rng
        )
        return BatchIndices(
            problems=np.concatenate([replayed, rest.problems]),
            num_fallback=rest.num_fallback,
        )
