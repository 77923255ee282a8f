"""Which entries two runs both moved, beside what chance would have them share."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rlvr_jax.analysis.geometry.movement import RunMovement


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
