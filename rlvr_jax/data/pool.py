"""The train problems, as a curriculum serves them.

The pool is the first `difficulty.pool_size` problems of the train source. Only they
have a posterior of their pass rate. The uniform curriculum may also read the rest of a
generated source; a problem outside the pool has the index -1.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Int

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.data import difficulty as estimates
from rlvr_jax.data.curricula import BatchIndices, Curriculum, DrawState
from rlvr_jax.data.difficulty import Difficulty
from rlvr_jax.data.loader import (
    MAX_SCANNED_PROBLEMS,
    BatchReader,
    read_rows,
)
from rlvr_jax.types import Problem, ProblemSource

if TYPE_CHECKING:
    import grain

_GENERATED_POOL_SIZE = 1024  # problems with a posterior, if the source is generated


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemBatch:
    """The problems of one batch. Written by `Pool.next_batch`, read by `rollouts`."""

    problems: list[Problem]
    source_index: Int[np.ndarray, " P"]  # within the source
    problem_index: Int[np.ndarray, " P"]  # within the pool, -1 outside
    # The last rows, which were filled although the curriculum had no eligible problem
    num_fallback: int

    def with_first(
        self, first: Sequence[tuple[int, Problem]], rng: np.random.Generator
    ) -> Self:
        """Returns the batch with these problems first, in the place of as many others.

        Each comes with its position in the pool. Fallback rows make room before others,
        which do at random: a mixture keeps its shares.
        """
        num_fallback = max(0, self.num_fallback - len(first))
        chosen = len(self.problems) - self.num_fallback
        left = min(chosen, len(self.problems) - len(first))
        kept = np.sort(rng.permutation(chosen)[:left])
        kept = np.concatenate([kept, chosen + np.arange(num_fallback)])
        index = [index for index, _ in first]
        return dataclasses.replace(
            self,
            problems=[
                *(problem for _, problem in first),
                *(self.problems[p] for p in kept),
            ],
            source_index=np.array([*[-1] * len(first), *self.source_index[kept]]),
            problem_index=np.array([*index, *self.problem_index[kept]]),
            num_fallback=num_fallback,
        )


class Pool:
    """A train source behind the config's curriculum."""

    def __init__(self, source: ProblemSource, config: Config):
        self._source = source
        self._config = config
        wanted, available = config.difficulty.pool_size, len(source)
        is_generated = available > MAX_SCANNED_PROBLEMS
        default = _GENERATED_POOL_SIZE if is_generated else available
        self.size = min(wanted or default, available)
        self._source_size = self.size if wanted else available
        if not isinstance(config.curriculum, Curriculum):
            raise ConfigError(
                f"curriculum {type(config.curriculum).__name__} is not a subclass of "
                "rlvr_jax.data.curricula.Curriculum; derive it from that class"
            )
        self._curriculum = config.curriculum
        self._curriculum.check_pool(self.size)
        self._ahead: dict[Any, BatchReader[ProblemBatch]] = {}

    def next_batch(
        self,
        difficulty: Difficulty,
        step: int,
        batch_size: int,
        *,
        asked: Sequence[int] = (),
        shard: "grain.sharding.ShardOptions | None" = None,
    ) -> ProblemBatch:
        """Returns the problems of the next batch: all of it, or one process's rows.

        They depend on the arguments alone. `asked` are the pool's problems in earlier
        batches of this step. If the curriculum ignores difficulty, the next batches are
        read ahead.
        """

        def read(batch_index: int) -> ProblemBatch:
            now = dataclasses.replace(difficulty, num_batches=batch_index)
            indices = self.next_indices(now, step, batch_size, asked=asked)
            return self.read(indices.shard(shard) if shard else indices)

        if not self._curriculum.ignores_difficulty:
            return read(difficulty.num_batches)
        ahead = self._ahead.setdefault((batch_size, shard), BatchReader(read))
        return ahead[difficulty.num_batches]

    def next_indices(
        self,
        difficulty: Difficulty,
        step: int,
        batch_size: int,
        *,
        asked: Sequence[int] = (),
    ) -> BatchIndices:
        """Returns the positions of the next batch's problems in the source."""
        draw = DrawState(
            seed=self._config.seed,
            batch_index=difficulty.num_batches,
            step=step,
            num_steps=self._config.train.steps,
            source_size=self._source_size,
            bands_config=self._config.difficulty,
            read_levels=lambda: self._levels,
            read_problems=lambda: list(read_rows(self._source, range(self.size))),
            asked=np.isin(np.arange(self.size), np.array(asked, int)),
        )
        return self._curriculum.next_batch(difficulty, draw, batch_size)

    def read(self, batch: BatchIndices) -> ProblemBatch:
        """Returns the problems of a batch that a curriculum chose."""
        problems_P = batch.problems
        return ProblemBatch(
            problems=list(read_rows(self._source, problems_P.tolist())),
            source_index=problems_P,
            problem_index=np.where(problems_P < self.size, problems_P, -1),
            num_fallback=batch.num_fallback,
        )

    def initial(self) -> Difficulty:
        """Returns the difficulty estimates before any problem was tried."""
        return estimates.init_difficulty(self.size)

    def problem_ids(self) -> list[str]:
        """Returns the ids of the pool's problems."""
        return [self._source[i].id for i in range(self.size)]

    def levels(self) -> list[int]:
        """Returns the levels of the pool's problems."""
        return self._levels.tolist()

    def problems(self, problem_index: Int[np.ndarray, " P"]) -> list[Problem]:
        """Returns the pool's problems at these indices."""
        return [self._source[int(i)] for i in problem_index]

    @functools.cached_property
    def _levels(self) -> Int[np.ndarray, " N"]:
        return np.array([self._source[i].level for i in range(self.size)], int)
