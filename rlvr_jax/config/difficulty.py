"""Settings of difficulty: how it is estimated, and which problems a step samples."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from job_jax.config import PositiveFraction
from job_jax.registry import OpenSection, Registry
from job_jax.schema import (
    ConfigSection,
    NonNegativeInt,
    UnitInterval,
    check,
    read_other_names,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifficultyConfig(ConfigSection):
    """How the pass rate of each train problem is estimated, by a posterior.

    With the default cuts, a problem with 8 samples is hard at 0 correct, easy at 8.
    """

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        num_samples="samples n_samples",
        pool_size="pool size",
    )

    num_samples: NonNegativeInt = 0  # samples a problem before RL; 0: no such stage
    pool_size: NonNegativeInt = 0  # with a posterior; 0: all, or 1024 of over 100,000
    hard_below: PositiveFraction = 0.0625  # pass rates below it are hard
    easy_above: UnitInterval = 0.9375  # pass rates above it are easy
    min_posterior_mass: PositiveFraction = 0.8  # mass a band needs; else unknown
    decay: PositiveFraction = 0.7  # weight of the evidence before a visit; 1: keep all
    variance_momentum: UnitInterval = 0.9  # of a problem's variance score (VCRL)

    def __post_init__(self) -> None:
        """Refuses cuts that overlap."""
        super().__post_init__()
        check(
            self.hard_below <= self.easy_above,
            f"hard_below={self.hard_below} is above easy_above={self.easy_above}; "
            "leave room between them for medium problems",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicSamplingConfig(ConfigSection):
    """Replaces groups without a learning signal within a step (DAPO)."""

    max_rounds: NonNegativeInt = 0  # most extra batches that a step samples; 0: off


_CURRICULA = "rlvr_jax.data.curricula"
CURRICULA = Registry(
    "curriculum",
    {
        "uniform": f"{_CURRICULA}.uniform:Uniform",
        "band": f"{_CURRICULA}.mixture:Band",
        "mixture": f"{_CURRICULA}.mixture:Mixture",
        "easy_to_hard": f"{_CURRICULA}.easy_to_hard:EasyToHard",
        "target": f"{_CURRICULA}.target:TargetPassRate",
        "variance": f"{_CURRICULA}.variance:Variance",
        "vcrl": f"{_CURRICULA}.vcrl:VCRL",
        "filter": f"{_CURRICULA}.filter:PassRateFilter",
        "one_sample": f"{_CURRICULA}.uniform:OneSample",
        "replay": f"{_CURRICULA}.replay:Replay",
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurriculumConfig(OpenSection):
    """Which of the pool's problems a training step samples (docs/method/difficulty.md).

    Every choice is a `rlvr_jax.data.curricula.Curriculum`.
    """

    registry: ClassVar[Registry] = CURRICULA
    # True: a step's problems depend on the number of steps, so it may not change.
    reads_num_steps: ClassVar[bool] = False
    # True: a batch may be larger than the pool, because problems repeat on purpose.
    repeats_problems: ClassVar[bool] = False

    @property
    def needs_initial_estimates(self) -> bool:
        """Returns whether stage `difficulty` must have sampled every problem."""
        return False


def default_curriculum() -> CurriculumConfig:
    """Returns the curriculum `uniform` with its defaults."""
    return CURRICULA.load("uniform")()
