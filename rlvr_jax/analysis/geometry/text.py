"""The geometry of RL's change as text: a table for each arm, then overlaps."""

import math
from collections.abc import Mapping, Sequence

from job_jax.resampling import Interval
from rlvr_jax.analysis.geometry.movement import PARTS, RunMovement
from rlvr_jax.analysis.geometry.overlap import (
    ArmOverlap,
    MeanOverlap,
    RunOverlap,
    overlap_arms,
)
from rlvr_jax.analysis.geometry.summary import ALL, MEASURES, Measured, summarize_arm
from rlvr_jax.report.tables import Table, align_table

_LABELS = {
    "relative_size": "change / weights, %",
    "moved_float32": "entries moved in float32, %",
    "moved_bfloat16": "entries moved in bfloat16, %",
    "rank_one_share": "share of rank one, %",
    "principal_share": "share in principal subspace, %",
    "principal_angle": "turn of principal subspace, degrees",
    "linearity": "linearity in steps, R^2 in %",
    "straightness": "straightness, %",
}
_READING = """\
Cells are: value (equally large noise). Noise moves each tensor equally far in a uniform
random direction; for linearity and straightness it is a walk with increments of the
same lengths at right angles. Several seeds are shown as their mean, with Student's 95 %
interval. docs/lab/geometry.md explains the rows."""


def format_geometry(
    arms: Mapping[str, Sequence[RunMovement]], overlaps: Sequence[RunOverlap]
) -> str:
    """Returns a table of measures by part for each arm, and one of overlaps."""
    parts = [_format_arm(label, runs) for label, runs in arms.items()]
    if overlaps:
        parts.append(align_table(overlap_table(overlap_arms(arms, overlaps))))
    return "\n\n".join([*parts, _READING])


def geometry_table(summary: Sequence[Measured]) -> Table:
    """Returns a row for each measure and a column for each part of the policy."""
    cells = {(each.measure, each.part): _format_cell(each) for each in summary}
    return Table(
        head=["", *PARTS, ALL],
        rows=[
            [_LABELS[measure], *(cells.get((measure, p), "-") for p in (*PARTS, ALL))]
            for measure in MEASURES
            if any((measure, part) in cells for part in (*PARTS, ALL))
        ],
    )


def overlap_table(overlaps: Sequence[ArmOverlap]) -> Table:
    """Returns a row for each two arms: the share of common entries, and by chance."""
    return Table(
        head=[
            "entries shared (chance), %",
            "pairs",
            "moved in bfloat16",
            "farthest 1 %",
            "start",
        ],
        rows=[
            [
                " and ".join(overlap.arms),
                str(overlap.num_pairs),
                _format_overlap(overlap.moved),
                _format_overlap(overlap.largest),
                "the same" if overlap.same_start else "not the same",
            ]
            for overlap in overlaps
        ],
    )


def _format_arm(label: str, runs: Sequence[RunMovement]) -> str:
    steps = sorted({run.steps[-1] for run in runs})
    title = (
        f"{label}: {len(runs)} run{'s' * (len(runs) > 1)}, from before RL to step "
        f"{' or '.join(map(str, steps))}, {min(len(run.steps) for run in runs)} "
        "checkpoints"
    )
    lines = [title, align_table(geometry_table(summarize_arm(runs)))]
    if min(len(run.steps) for run in runs) < 2:
        lines.append(
            "a path needs at least two checkpoints: raise checkpoint.max_to_keep and "
            "lower checkpoint.every to keep more"
        )
    return "\n".join(lines)


def _format_cell(measured: Measured) -> str:
    scale = 1 if measured.measure == "principal_angle" else 100
    value, noise = measured.value, measured.noise
    return f"{_format(value, scale)} ({_format_value(noise.value * scale)})"


def _format(interval: Interval, scale: int) -> str:
    value, low, high = (_format_value(scale * x) for x in interval)
    return value if math.isnan(interval.low) else f"{value} [{low}, {high}]"


def _format_value(value: float) -> str:
    return f"{value:.3g}"


def _format_overlap(overlap: MeanOverlap) -> str:
    if math.isnan(overlap.share.value):
        return "-"
    return f"{_format(overlap.share, 100)} ({_format_value(100 * overlap.chance)})"
