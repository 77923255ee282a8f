"""Which entries two runs both moved, beside what chance would have them share."""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from job_jax.resampling import Interval
from rlvr_jax.analysis.geometry.movement import RunMovement
from rlvr_jax.metrics.bootstrap import t_interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap:
    """Entries that two runs share, as a share of those that either has (Jaccard).

    `chance` is what two sets as large would share, were each spread evenly within its
    tensors. NaN where neither run has an entry.
    """

    share: float
    chance: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOverlap:
    """What two runs share of the entries they moved, and of those moved farthest."""

    runs: tuple[RunMovement, RunMovement]
    moved: Overlap
    largest: Overlap

    @property
    def same_start(self) -> bool:
        """Returns whether RL started from the same parameters."""
        return self.runs[0].start == self.runs[1].start


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmOverlap:
    """What the runs of two arms share, pair by pair, or those of one arm.

    Means over the pairs in which something moved. Their intervals are Student's where
    each run is in one pair alone, as runs of a seed are that go on from one policy:
    pairs that have a run in common are not independent, and have NaN ends.
    """

    arms: tuple[str, str]
    same_start: bool
    num_pairs: int
    moved: Interval
    moved_chance: float
    largest: Interval
    largest_chance: float


def overlap_arms(
    arms: Mapping[str, Sequence[RunMovement]], overlaps: Sequence[RunOverlap]
) -> list[ArmOverlap]:
    """Returns the overlaps of each two arms, apart for runs that started alike."""
    arm_of = {id(run): arm for arm, runs in arms.items() for run in runs}
    pairs = collections.defaultdict(list)
    for overlap in overlaps:
        one, other = (arm_of[id(run)] for run in overlap.runs)
        pairs[(one, other), overlap.same_start].append(overlap)
    return [
        ArmOverlap(
            arms=names,
            same_start=same_start,
            num_pairs=len(group),
            moved=_mean_share(group, [each.moved.share for each in group]),
            moved_chance=_mean([each.moved.chance for each in group]),
            largest=_mean_share(group, [each.largest.share for each in group]),
            largest_chance=_mean([each.largest.chance for each in group]),
        )
        for (names, same_start), group in pairs.items()
    ]


def _mean_share(pairs: Sequence[RunOverlap], shares: Sequence[float]) -> Interval:
    known = [share for share in shares if not np.isnan(share)]
    used = collections.Counter(id(run) for pair in pairs for run in pair.runs)
    if known and max(used.values()) == 1:
        return t_interval(known)
    return Interval(_mean(shares), np.nan, np.nan)


def _mean(values: Sequence[float]) -> float:
    """Returns the mean of what is not NaN, NaN of nothing."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


def overlap_runs(runs: Sequence[RunMovement]) -> list[RunOverlap]:
    """Returns what each two runs share whose tensors have the same names and sizes."""
    return [
        RunOverlap(
            runs=(one, other),
            moved=overlap_sets(one.moved, other.moved, sizes=_sizes(one)),
            largest=overlap_sets(one.largest, other.largest, sizes=_sizes(one)),
        )
        for one, other in itertools.combinations(runs, 2)
        if _sizes(one) == _sizes(other)
    ]


def overlap_sets(
    one: Mapping[str, npt.NDArray[np.uint8]],
    other: Mapping[str, npt.NDArray[np.uint8]],
    *,
    sizes: Mapping[str, int],
) -> Overlap:
    """Returns the overlap of two sets of entries, given as bits by tensor."""
    both = either = expected = 0.0
    for name, size in sizes.items():
        count, other_count = (_count_ones(bits[name]) for bits in (one, other))
        both += _count_ones(one[name] & other[name])
        either += _count_ones(one[name] | other[name])
        expected += count * other_count / size
    if either == 0:
        return Overlap(share=np.nan, chance=np.nan)
    return Overlap(share=both / either, chance=expected / (both + either - expected))


def _sizes(run: RunMovement) -> dict[str, int]:
    return {tensor.name: tensor.size for tensor in run.tensors}


def _count_ones(bits: npt.NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(bits).sum())
