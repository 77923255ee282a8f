"""How many entries two runs both moved, compared with chance."""

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
class SubspaceOverlap:
    """Entries that both runs have, as a share of the entries that either has (Jaccard).

    `chance` is the expected share for random sets of the same size in each tensor. Both
    are NaN if neither run has an entry.
    """

    share: float
    chance: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOverlap:
    """The overlap of two runs, for moved entries and for entries moved farthest."""

    runs: tuple[RunMovement, RunMovement]
    moved: SubspaceOverlap
    largest: SubspaceOverlap

    @property
    def same_start(self) -> bool:
        """Returns whether RL started from the same parameters."""
        return self.runs[0].start == self.runs[1].start


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanOverlap:
    """The mean of overlaps, with Student's interval if they are independent.

    It is NaN if all overlaps are NaN. Without an interval, its ends are NaN.
    """

    share: Interval
    chance: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmOverlap:
    """The overlap of runs in two arms, or within one arm: means over pairs of runs.

    Pairs are independent if no two of them share a start of RL. An example is one pair
    per seed, whose two runs start from that seed's policy.
    """

    arms: tuple[str, str]
    same_start: bool
    num_pairs: int
    moved: MeanOverlap
    largest: MeanOverlap


def overlap_runs(runs: Sequence[RunMovement]) -> list[RunOverlap]:
    """Returns the overlap of each two runs with the same tensor names and sizes."""
    return [
        RunOverlap(
            runs=(one, other),
            moved=overlap_sets(one.moved, other.moved, sizes=_sizes(one)),
            largest=overlap_sets(one.largest, other.largest, sizes=_sizes(one)),
        )
        for one, other in itertools.combinations(runs, 2)
        if _sizes(one) == _sizes(other)
    ]


def overlap_arms(
    arms: Mapping[str, Sequence[RunMovement]], overlaps: Sequence[RunOverlap]
) -> list[ArmOverlap]:
    """Returns the overlaps of each two arms; pairs with the same start are separate."""
    arm_of = {id(run): arm for arm, runs in arms.items() for run in runs}
    pairs = collections.defaultdict(list)
    for overlap in overlaps:
        one, other = (arm_of[id(run)] for run in overlap.runs)
        pairs[(one, other), overlap.same_start].append(overlap)
    return [_overlap_arms(*key, group) for key, group in pairs.items()]


def _overlap_arms(
    arms: tuple[str, str], same_start: bool, pairs: Sequence[RunOverlap]
) -> ArmOverlap:
    starts = [start for pair in pairs for start in {run.start for run in pair.runs}]
    are_independent = len(set(starts)) == len(starts)
    return ArmOverlap(
        arms=arms,
        same_start=same_start,
        num_pairs=len(pairs),
        moved=_average([pair.moved for pair in pairs], are_independent),
        largest=_average([pair.largest for pair in pairs], are_independent),
    )


def _average(overlaps: Sequence[SubspaceOverlap], are_independent: bool) -> MeanOverlap:
    known = [overlap for overlap in overlaps if not np.isnan(overlap.share)]
    if not known:
        return MeanOverlap(share=Interval(np.nan, np.nan, np.nan), chance=np.nan)
    share = t_interval([overlap.share for overlap in known])
    return MeanOverlap(
        share=share if are_independent else Interval(share.value, np.nan, np.nan),
        chance=float(np.mean([overlap.chance for overlap in known])),
    )


def overlap_sets(
    one: Mapping[str, npt.NDArray[np.uint8]],
    other: Mapping[str, npt.NDArray[np.uint8]],
    *,
    sizes: Mapping[str, int],
) -> SubspaceOverlap:
    """Returns the overlap of two sets of entries, given as bits by tensor."""
    both = either = expected = 0.0
    for name, size in sizes.items():
        count, other_count = (_count_ones(bits[name]) for bits in (one, other))
        both += _count_ones(one[name] & other[name])
        either += _count_ones(one[name] | other[name])
        expected += count * other_count / size
    if either == 0:
        return SubspaceOverlap(share=np.nan, chance=np.nan)
    return SubspaceOverlap(
        share=both / either, chance=expected / (both + either - expected)
    )


def _sizes(run: RunMovement) -> dict[str, int]:
    return {tensor.name: tensor.size for tensor in run.tensors}


def _count_ones(bits: npt.NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(bits).sum())
