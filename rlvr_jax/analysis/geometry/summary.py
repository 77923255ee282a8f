"""Summarizes how a run's tensors moved, part by part, and over several seeds."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.resampling import Interval
from rlvr_jax.analysis.geometry.measures import Change, Straightness
from rlvr_jax.analysis.geometry.movement import PARTS, Movement, RunMovement
from rlvr_jax.analysis.geometry.overlap import RunOverlap
from rlvr_jax.metrics.bootstrap import t_interval
from rlvr_jax.report.run_files import to_plain_json

# Each measure, and whether its mean weights tensors by their number of entries.
_MEASURES = {
    "relative_size": False,
    "moved_float32": True,
    "moved_bfloat16": True,
    "rank_one_share": False,
    "principal_share": False,
    "principal_angle": False,
    "linearity": False,
    "straightness": False,
}
MEASURES = tuple(_MEASURES)
ALL = "all"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One measure of one part of the policy: over seeds, and for equal noise."""

    measure: str
    part: str
    value: Interval
    noise: Interval


def summarize_arm(runs: Sequence[RunMovement]) -> list[Measured]:
    """Returns each measure of each part: the mean over runs, with Student's interval.

    A run's value is the mean over the part's tensors; shares of moved entries are over
    all entries of the part. A measure is left out if no tensor of the part defines it.
    """
    summary = []
    for part in (*PARTS, ALL):
        for measure in MEASURES:
            values, noises = (
                [_mean(run.tensors, measure, part, under_noise=noise) for run in runs]
                for noise in (False, True)
            )
            if not any(map(math.isnan, values)):
                summary.append(
                    Measured(
                        measure=measure,
                        part=part,
                        value=t_interval(values),
                        noise=t_interval(noises),
                    )
                )
    return summary


def geometry_to_json(
    arms: Mapping[str, Sequence[RunMovement]], overlaps: Sequence[RunOverlap]
) -> dict[str, Any]:
    """Returns all measurements, tensor by tensor; undefined numbers are null."""
    return {
        "arms": [
            {
                "label": label,
                "measures": [
                    {
                        "measure": each.measure,
                        "part": each.part,
                        **each.value.to_json(),
                        "noise": each.noise.to_json(),
                    }
                    for each in summarize_arm(runs)
                ],
                "runs": [
                    {
                        "workdir": str(run.workdir),
                        "steps": run.steps,
                        "distances": run.distances,
                        "tensors": to_plain_json(
                            [dataclasses.asdict(tensor) for tensor in run.tensors]
                        ),
                    }
                    for run in runs
                ],
            }
            for label, runs in arms.items()
        ],
        "overlaps": [
            {
                "workdirs": [str(run.workdir) for run in overlap.runs],
                "same_start": overlap.same_start,
                "moved": to_plain_json(dataclasses.asdict(overlap.moved)),
                "largest": to_plain_json(dataclasses.asdict(overlap.largest)),
            }
            for overlap in overlaps
        ],
    }


def _mean(
    tensors: Sequence[Movement], measure: str, part: str, *, under_noise: bool
) -> float:
    """Returns a measure's mean over the part's tensors for which it is defined."""
    chosen = [t for t in tensors if part in (ALL, t.part)]
    values = np.array([_record(t, under_noise=under_noise)[measure] for t in chosen])
    weights = np.array([t.size if _MEASURES[measure] else 1 for t in chosen])
    known = ~np.isnan(values)
    if not known.any():
        return math.nan
    return float(np.average(values[known], weights=weights[known]))


def _record(tensor: Movement, *, under_noise: bool) -> dict[str, float]:
    change: Change = tensor.noise if under_noise else tensor.change
    path: Straightness = tensor.walk if under_noise else tensor.path
    return {**dataclasses.asdict(change), **dataclasses.asdict(path)}
