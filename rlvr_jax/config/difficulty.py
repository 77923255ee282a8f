"""Settings of difficulty: how it is estimated, and which problems a step samples."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from job_jax.config import PositiveFraction
from job_jax.registry import OpenSection, Registry, find_places
from job_jax.schema import (
    ConfigSection,
    NonNegativeInt,
    UnitInterval,
    check,
    read_other_names,
)
from rlvr_jax.types import Problem

if TYPE_CHECKING:
    from rlvr_jax.rollouts.groups import ProblemGroups


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


REFILLS = Registry(
    "dynamic sampling",
    {"new_problems": f"{__name__}:DynamicSamplingConfig"}
    | find_places("rlvr_jax.rollouts.refill"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicSamplingConfig(OpenSection):
    """Replaces groups without a learning signal within a step (DAPO).

    A step samples more batches, of new problems, until it has enough groups with
    correct and incorrect completions. A subclass may ask for other problems, stop by
    another rule, or prefer other groups; `dynamic_sampling.name` takes one of ours or
    yours, as "package.module:Class".
    """

    registry: ClassVar[Registry] = REFILLS
    earlier_tag: ClassVar[str] = "new_problems"  # before there was a choice

    max_rounds: NonNegativeInt = 0  # most extra batches that a step samples; 0: off

    def is_enough(self, rounds: "Sequence[ProblemGroups]", batch_size: int) -> bool:
        """Returns whether the step's groups are enough to train on."""
        return sum(groups.count_with_signal() for groups in rounds) >= batch_size

    def problems_again(
        self, rounds: "Sequence[ProblemGroups]", batch_size: int
    ) -> list[tuple[int, Problem]]:
        """Returns problems for the next batch, each with its position in the pool.

        New problems fill the rest of the batch; there may be at most `batch_size`.
        """
        return []

    def is_preferred(self, groups: "ProblemGroups", p: int) -> bool:
        """Returns whether to train on this group before others."""
        return groups.has_signal(p)


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
