"""The base of curricula that follow the posterior, except for some uniform rows."""

import abc
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
class EpsilonUniform(Curriculum):
    """Chooses by the posterior, except for a fraction of rows from the whole pool.

    Without these rows, a wrong posterior of a problem might never be corrected.
    """

    uniform_fraction: UnitInterval = 0.1  # of the rows, drawn from the whole pool

    @abc.abstractmethod
    def pick_problems(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the rows that follow the posterior."""

    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the rows that follow the posterior, then those from the whole pool.

        The second part makes up the fraction over all batches so far, rounded down: a
        tenth of 8 rows is four rows in five batches.
        """
        before, after = (
            int(self.uniform_fraction * batch_size * (draw.batch_index + i))
            for i in (0, 1)
        )
        num_uniform = after - before
        chosen = self.pick_problems(difficulty, draw, batch_size - num_uniform)
        others_N = np.ones(difficulty.size, bool)
        others_N[chosen.problems] = False
        # Another generator, because `pick_problems` has used the draw's.
        rng = np.random.default_rng((draw.seed, 0xE4, draw.batch_index))
        uniform = pick_least_visited(difficulty, others_N, num_uniform, draw, rng=rng)
        return BatchIndices(
            problems=np.concatenate([chosen.problems, uniform.problems]),
            num_fallback=chosen.num_fallback,
        )
