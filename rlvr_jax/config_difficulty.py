"""The settings of difficulty: how it is estimated, and which problems a step asks."""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import NOT_EMPTY, PositiveShare
from job_jax.schema import Section, Share, Whole, require
from rlvr_jax.types import Band


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifficultyConfig(Section):
    """What is known of each train problem: a posterior of its pass rate.

    With the default cuts a problem of 8 samples is hard at 0 right, easy at 8.
    """

    samples: Whole = 0  # of the policy before RL, per problem; 0: no such stage
    pool: Whole = 0  # first train problems with a posterior; 0: all, or 1024 of a world
    hard_below: PositiveShare = 0.0625  # pass rate
    easy_above: Share = 0.9375  # pass rate
    confidence: PositiveShare = 0.8  # posterior mass that a band needs; else unknown
    decay: PositiveShare = 0.7  # weight of the evidence before a visit; 1: keep all

    def __post_init__(self) -> None:
        """Refuses cuts that overlap."""
        super().__post_init__()
        require(
            self.hard_below <= self.easy_above,
            f"hard_below={self.hard_below} lies above easy_above={self.easy_above}; "
            "leave room between them for medium problems",
        )


# The fields that each curriculum reads beside those that all of them do.
_CURRICULUM_READS: dict[str, tuple[str, ...]] = {
    "uniform": (),
    "bucket": ("bucket", "estimate"),
    "mixture": ("mixture", "mixture_shares", "estimate"),
    "easy_to_hard": ("window", "estimate"),
    "target": ("target",),
    "variance": (),
    "vcrl": ("vcrl_early", "vcrl_late", "vcrl_early_steps", "vcrl_momentum"),
    "filter": ("filter_low", "filter_high"),
    "one_sample": ("problem",),
    "replay": ("replay_share",),
}
_EXPLORING = ("target", "variance", "vcrl", "filter")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurriculumConfig(Section):
    """Which of the pool's problems a training step asks (docs/difficulty.md).

    A field that the named curriculum does not read is refused unless left alone.
    """

    name: Literal[
        "uniform",
        "bucket",
        "mixture",
        "easy_to_hard",
        "target",
        "variance",
        "vcrl",
        "filter",
        "one_sample",
        "replay",
    ] = "uniform"
    refill_rounds: Whole = 0  # more batches a step, to replace groups without signal
    estimate: Literal["initial", "current"] = "initial"  # initial: before RL, fixed
    bucket: Band = "medium"
    mixture: Annotated[tuple[Band, ...], NOT_EMPTY] = ("easy", "medium")
    mixture_shares: tuple[float, ...] = ()  # of the batch, by bucket; () is even
    window: PositiveShare = 0.5  # easy_to_hard: share of the pool, slid over the run
    target: Share = 0.5  # target: the pass rate to be closest to
    vcrl_early: Share = 0.3  # least variance score over the first steps
    vcrl_late: Share = 0.8  # and afterwards
    vcrl_early_steps: Whole = 20
    vcrl_momentum: Share = 0.9  # of a problem's score in the memory bank
    filter_low: Share = 0.2  # filter: least pass rate asked
    filter_high: Share = 0.8  # filter: greatest
    problem: Whole = 0  # one_sample: its number within the pool
    replay_share: Share = 0.25  # replay: of the batch, at most, for forgotten problems
    explore: Share = 0.1  # target, variance, vcrl, filter: share drawn from all

    def __post_init__(self) -> None:
        """Refuses fields without effect, and shares that do not fit the buckets."""
        super().__post_init__()
        reads = {"name", "refill_rounds", *_CURRICULUM_READS[self.name]}
        reads |= {"explore"} if self.name in _EXPLORING else set()
        for field in dataclasses.fields(self):
            value = vars(self)[field.name]
            require(
                field.name in reads or value == field.default,
                f"{field.name}={value!r} does nothing with name={self.name}; leave it "
                f"at {field.default!r}, or choose a curriculum that reads it",
            )
        require(
            self.estimate == "current" or "unknown" not in (self.bucket, *self.mixture),
            "before RL every problem is easy, medium or hard; bucket unknown needs "
            "estimate=current",
        )
        shares = self.mixture_shares
        require(
            len(shares) in (0, len(self.mixture)),
            f"mixture_shares has {len(shares)} entries for mixture={self.mixture}; "
            "give one share a bucket, or none",
        )
        require(
            not shares or (min(shares) >= 0 and sum(shares) > 0),
            f"mixture_shares={shares}; shares are >= 0 and not all 0",
        )
        require(
            self.filter_low <= self.filter_high,
            f"filter_low={self.filter_low} lies above filter_high={self.filter_high}; "
            "no pass rate lies between them",
        )
