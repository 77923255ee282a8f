"""Curricula that ignore difficulty: all problems alike, or a single one."""

import dataclasses
from typing import ClassVar

import numpy as np

from job_jax.schema import NonNegativeInt, check
from rlvr_jax.data.curricula.base import BatchIndices, Curriculum, DrawState
from rlvr_jax.data.difficulty import Difficulty

_ORDER = 0xF00D  # keeps this order apart from that of stage `sft`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uniform(Curriculum):
    """Every problem alike: the source is reshuffled every epoch.

    It reads the whole source, even if only its beginning has posteriors. Row r of batch
    b is item b * P + r of the shuffled source.
    """

    ignores_difficulty: ClassVar[bool] = True

    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the next `batch_size` problems of the shuffled source."""
        import grain  # noqa: PLC0415 - see data.loader

        (seed,) = np.random.SeedSequence((draw.seed, _ORDER)).generate_state(1).tolist()
        order = grain.MapDataset.range(draw.source_size).shuffle(seed=seed).repeat()
        start = draw.batch_index * batch_size
        rows = range(start, start + batch_size)
        return BatchIndices(problems=np.array([order[row] for row in rows]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSample(Curriculum):
    """One problem in every row (https://arxiv.org/abs/2504.20571)."""

    ignores_difficulty: ClassVar[bool] = True
    repeats_problems: ClassVar[bool] = True

    problem_index: NonNegativeInt = 0  # within the pool

    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the problem, `batch_size` times."""
        return BatchIndices(problems=np.full(batch_size, self.problem_index))

    def check_pool(self, pool_size: int) -> None:
        """Refuses a problem beyond the end of the pool."""
        check(
            self.problem_index < pool_size,
            f"curriculum.problem_index={self.problem_index} is beyond the pool of "
            f"{pool_size} problems; choose an earlier one, or raise "
            "difficulty.pool_size",
        )
