"""The train problems as a curriculum serves them.

The pool is the first `difficulty.pool` problems of the train source: those of which a
posterior is kept. A problem outside it (the uniform curriculum may read more of a
generated world than anyone could keep account of) has the number -1.
"""

import dataclasses

import grain
import numpy as np
from jaxtyping import Int

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.data import difficulty
from rlvr_jax.data.curricula import Draw, Order, make
from rlvr_jax.data.difficulty import Difficulty
from rlvr_jax.data.loader import READ_THROUGH, ProblemSource
from rlvr_jax.types import Problem

_OF_A_WORLD = 1024  # problems kept account of where a source is generated


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """The problems of one batch. Written by `Pool.serve`, read by `experience`.

    `fallback` counts the rows for which the curriculum found nothing eligible.
    """

    problems: list[Problem]
    numbers: Int[np.ndarray, " P"]  # within the pool, -1 outside
    fallback: int


class Pool:
    """A train source behind a curriculum."""

    def __init__(self, source: ProblemSource, config: Config):
        self._source = source
        self._config = config
        asked, whole = config.difficulty.pool, len(source)
        self.size = min(
            asked or (_OF_A_WORLD if whole > READ_THROUGH else whole), whole
        )
        c = config.curriculum
        if c.problem >= self.size:
            raise ConfigError(
                f"curriculum.problem={c.problem} lies beyond the pool of {self.size} "
                "problems; choose an earlier one, or raise difficulty.pool"
            )
        self._curriculum = make(
            config,
            source_size=self.size if asked else whole,
            levels=np.array(self.levels() if c.name == "easy_to_hard" else []),
        )

    def serve(
        self,
        known: Difficulty,
        step: int,
        count: int,
        *,
        shard: grain.sharding.ShardOptions | None = None,
    ) -> Served:
        """Returns the problems of the next batch: of all of it, or a process's rows."""
        order = self.order(known, step, count)
        if shard:
            order = order.shard(shard)
        problems_P = order.problems
        return Served(
            problems=[self._source[int(i)] for i in problems_P],
            numbers=np.where(problems_P < self.size, problems_P, -1),
            fallback=order.fallback,
        )

    def order(self, known: Difficulty, step: int, count: int) -> Order:
        """Returns the next batch's places in the source."""
        draw = Draw(
            seed=self._config.seed,
            number=known.draws,
            step=step,
            steps=self._config.train.steps,
        )
        return self._curriculum.serve(known, draw, count)

    def fresh(self) -> Difficulty:
        """Returns what is known before anybody has tried a problem: nothing."""
        return difficulty.unknown(self.size)

    def names(self) -> list[str]:
        """Returns the ids of the pool's problems."""
        return [self._source[i].id for i in range(self.size)]

    def levels(self) -> list[int]:
        """Returns the levels of the pool's problems."""
        return [self._source[i].level for i in range(self.size)]

    def problems(self, numbers: Int[np.ndarray, " P"]) -> list[Problem]:
        """Returns the pool's problems of these numbers."""
        return [self._source[int(i)] for i in numbers]
