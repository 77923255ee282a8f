"""The base class of curricula, and how to add your own.

A curriculum is a frozen dataclass: its fields are its options, and `next_batch` is a
pure function of its arguments. All randomness comes from `DrawState.rng`, which is a
function of the seed and the index of the batch. A resumed run knows both, so it serves
what the interrupted run would have served.

Example (`mine.py` next to the recipe, `--config.curriculum.name=mine:Newest`):

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Newest(Curriculum):
        max_visits: PositiveInt = 2  # --config.curriculum.max_visits=3

        def next_batch(self, difficulty, draw, batch_size):
            eligible_N = difficulty.num_visits < self.max_visits
            return pick_least_visited(difficulty, eligible_N, batch_size, draw)
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.config.difficulty import CurriculumConfig, DifficultyConfig
from rlvr_jax.data.difficulty import Difficulty
from rlvr_jax.types import Problem

if TYPE_CHECKING:
    import grain

Source = Literal["initial", "online"]  # of a curriculum's difficulty estimates


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchIndices:
    """The problems of one batch, as indices into the source.

    `num_fallback` counts the rows that were filled from the whole pool because no
    eligible problem was left.
    """

    problems: Int[np.ndarray, " P"]
    num_fallback: int = 0

    def __len__(self) -> int:
        """Returns P."""
        return len(self.problems)

    def shard(self, options: "grain.sharding.ShardOptions") -> "BatchIndices":
        """Returns one process's rows: every `shard_count`-th."""
        own = self.problems[options.shard_index :: options.shard_count]
        return BatchIndices(problems=own, num_fallback=self.num_fallback)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawState:
    """The inputs of `Curriculum.next_batch` besides the difficulty of problems."""

    seed: int
    batch_index: int  # batches served before this one, also by dynamic sampling
    step: int
    num_steps: int  # of the whole stage; if you read it, set reads_num_steps
    source_size: int  # problems in the source; the pool may be only its beginning
    bands_config: DifficultyConfig  # where the bands are cut
    read_levels: Callable[[], Int[np.ndarray, " N"]]  # Problem.level over the pool
    asked: Bool[np.ndarray, " N"]  # sampled in batches whose outcomes are not known yet
    read_problems: Callable[[], Sequence[Problem]] = tuple  # the N of the pool

    @property
    def rng(self) -> np.random.Generator:
        """Returns this batch's random generator, in the same state at every access."""
        return self.reordered_rng(0)

    def reordered_rng(self, order: int) -> np.random.Generator:
        """Returns this batch's generator for another order; order 0 is `rng`."""
        seeds = (self.seed, 0xC0FFEE, self.batch_index)
        return np.random.default_rng((*seeds, order) if order else seeds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curriculum(CurriculumConfig, abc.ABC):
    """Chooses the problems of each batch. Subclass it for your own curriculum."""

    # True: the choice depends only on the draw's seed, batch_index and source_size.
    # Then the next batches are read ahead while the policy learns from this one.
    ignores_difficulty: ClassVar[bool] = False

    @abc.abstractmethod
    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the problems of a batch: a pure function of the arguments."""

    def check_pool(self, pool_size: int) -> None:
        """Raises ConfigError if the options do not fit a pool of this size."""


def pick_least_visited(
    difficulty: Difficulty,
    eligible_N: Bool[np.ndarray, " N"],
    batch_size: int,
    draw: DrawState,
    *,
    rng: np.random.Generator | None = None,
) -> BatchIndices:
    """Returns eligible problems, the least visited first, with ties at random.

    This walks through the eligible problems in epochs without keeping a position.
    Problems in the draw's `asked` come after all other eligible ones. No problem occurs
    twice in the batch unless fewer than `batch_size` are eligible. If none is eligible,
    all problems of the pool are, and every row counts as fallback. `rng`, by default
    the draw's, breaks ties.
    """
    any_eligible = bool(eligible_N.any())
    candidates = (
        np.flatnonzero(eligible_N) if any_eligible else np.arange(difficulty.size)
    )
    ties = (rng or draw.rng).permutation(len(candidates))
    ranked = candidates[np.lexsort((ties, difficulty.num_visits[candidates]))]
    return BatchIndices(
        problems=repeat_to_size(move_last(ranked, draw.asked), batch_size),
        num_fallback=0 if any_eligible else batch_size,
    )


def move_last(
    ranked: Int[np.ndarray, " P"], is_last_N: Bool[np.ndarray, " N"]
) -> Int[np.ndarray, " P"]:
    """Returns a ranking of problems with the marked ones after all others.

    The order within both parts stays.
    """
    return ranked[np.argsort(is_last_N[ranked], kind="stable")]


def sample_without_replacement(
    weights: Float[np.ndarray, " N"], rng: np.random.Generator
) -> Int[np.ndarray, " N"]:
    """Returns all indices, in the order of draws without replacement by weight.

    The largest value of log(w) plus Gumbel noise is a draw in proportion to w; the next
    largest is a draw from the rest. Weights of 0 come last.
    """
    with np.errstate(divide="ignore"):
        keys = np.log(weights) + rng.gumbel(size=len(weights))
    return np.argsort(-keys, kind="stable")


def repeat_to_size(
    ranked: Int[np.ndarray, " N"], batch_size: int
) -> Int[np.ndarray, " P"]:
    """Returns the first `batch_size` indices, repeated if there are fewer."""
    return np.resize(ranked, batch_size)
