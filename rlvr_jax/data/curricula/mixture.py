"""Curricula that fill a batch from difficulty bands: one band, or fixed shares."""

import dataclasses
from typing import Annotated

import numpy as np
from jaxtyping import Int

from job_jax.config import NON_EMPTY
from job_jax.schema import NonNegativeInt, check
from rlvr_jax.config.difficulty import DifficultyConfig
from rlvr_jax.data.curricula.base import (
    BatchIndices,
    Curriculum,
    DrawState,
    Source,
    pick_least_visited,
)
from rlvr_jax.data.difficulty import Difficulty
from rlvr_jax.types import BANDS
from rlvr_jax.types import Band as BandName


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandCurriculum(Curriculum):
    """Base of curricula that split the pool into difficulty bands."""

    difficulty_source: Source = "initial"  # pass rate before RL; online: posterior
    order: NonNegativeInt = 0  # another number: the same problems in another order

    @property
    def needs_initial_estimates(self) -> bool:
        """Returns whether stage `difficulty` must have sampled every problem."""
        return self.difficulty_source == "initial"

    def _check_bands(self, bands: tuple[BandName, ...]) -> None:
        check(
            self.difficulty_source == "online" or "unknown" not in bands,
            "before RL every problem is easy, medium or hard; band unknown needs "
            "difficulty_source=online",
        )

    def _problem_bands(
        self, difficulty: Difficulty, config: DifficultyConfig
    ) -> Int[np.ndarray, " N"]:
        """Returns each problem's band, as an index into BANDS."""
        if self.difficulty_source == "initial":
            return difficulty.initial_bands(config)
        return difficulty.posterior_bands(config)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Band(BandCurriculum):
    """Problems of one band, the least visited first."""

    band: BandName = "medium"  # of the problems that a step samples

    def __post_init__(self) -> None:
        """Refuses a band that no problem can be in."""
        super().__post_init__()
        self._check_bands((self.band,))

    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns problems of the band."""
        band_N = self._problem_bands(difficulty, draw.bands_config)
        rng = draw.reordered_rng(self.order)
        rng.random()  # as in Mixture's rounding, so one band equals a mixture of one
        return pick_least_visited(
            difficulty, band_N == BANDS.index(self.band), batch_size, draw, rng=rng
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixture(BandCurriculum):
    """Fixed shares of the batch from several bands.

    A share that does not make whole rows is rounded up or down at random, so it is
    correct on average. An empty band's rows come from the rest of the pool.
    """

    bands: Annotated[tuple[BandName, ...], NON_EMPTY] = ("easy", "medium")  # in a batch
    band_weights: tuple[float, ...] = ()  # shares of the batch; (): equal shares

    def __post_init__(self) -> None:
        """Refuses bands that no problem can be in, and weights that do not fit."""
        super().__post_init__()
        self._check_bands(self.bands)
        weights = self.band_weights
        check(
            len(weights) in (0, len(self.bands)),
            f"band_weights has {len(weights)} entries for bands={self.bands}; give one "
            "weight a band, or none",
        )
        check(
            not weights or (min(weights) >= 0 and sum(weights) > 0),
            f"band_weights={weights}; give weights >= 0 that are not all 0",
        )

    def next_batch(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns each band's rows, band after band, then the rows for empty bands."""
        band_N = self._problem_bands(difficulty, draw.bands_config)
        rng = draw.reordered_rng(self.order)
        weights = np.array(self.band_weights or (1.0,) * len(self.bands))
        ends = np.round(np.cumsum(weights / weights.sum()), 12)
        # One random shift for all bounds: every count is its share, rounded up or down.
        bounds = np.floor(ends * batch_size + rng.random())
        counts = np.diff(bounds, prepend=0.0).astype(int)
        chosen, num_fallback = np.zeros(0, int), 0
        for band, count in zip(self.bands, counts.tolist(), strict=True):
            member_N = band_N == BANDS.index(band)
            if not member_N.any():
                num_fallback += count
                continue
            rows = pick_least_visited(difficulty, member_N, count, draw, rng=rng)
            chosen = np.concatenate([chosen, rows.problems])
        others_N = np.ones(difficulty.size, bool)
        others_N[chosen] = False
        rest = pick_least_visited(difficulty, others_N, num_fallback, draw, rng=rng)
        return BatchIndices(
            problems=np.concatenate([chosen, rest.problems]),
            num_fallback=num_fallback,
        )
