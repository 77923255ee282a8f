"""Metrics of runs where their weights have moved equally far from one start.

Two runs of as many steps may have moved their weights by different distances, and a
policy that moved less has forgotten less. So the runs of a start are also compared at a
common distance: the shortest that one of them reached in the end.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from job_jax.resampling import Interval
from rlvr_jax.analysis.geometry.movement import RunMovement
from rlvr_jax.metrics.bootstrap import t_interval
from rlvr_jax.report.run_files import read_run
from rlvr_jax.report.tables import Table

# Metrics of training steps, and how many updates came before the value of step 0: an
# evaluation follows the step's update, and completions are sampled before it.
METRICS = {"eval/pass@1": 1, "eval/pass@8": 1, "rollout/entropy": 0}

Series = tuple[Sequence[float], Sequence[float]]  # numbers of updates, and values


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtEqualMovement:
    """A metric of an arm at the common distance, by start.

    `steps` are the numbers of updates at which its runs reached that distance.
    `differences` are from the first arm with the same start.
    """

    metric: str
    arm: str
    steps: list[float]
    values: list[float]
    differences: list[float]


def compare_at_equal_movement(
    arms: Mapping[str, Sequence[RunMovement]],
) -> list[AtEqualMovement]:
    """Returns the metrics of each arm over the starts that all arms share.

    A start is weights and a seed. It counts if all of its runs kept two checkpoints,
    and a metric if all have it. Returns [] for a single arm, and if no start counts.
    """
    by_start = {
        label: {(run.start, run.seed): run for run in runs if len(run.steps) > 1}
        for label, runs in arms.items()
    }
    first, *others = by_start.values()
    starts = [start for start in first if all(start in other for other in others)]
    if not others or not starts:
        return []
    reached = {
        start: min(runs[start].distances[-1] for runs in by_start.values())
        for start in starts
    }
    found = []
    for metric in METRICS:
        steps, values = {}, {}
        for label, runs in by_start.items():
            steps[label] = [find_step(runs[start], reached[start]) for start in starts]
            values[label] = [
                value_at(read_series(runs[start], metric), step)
                for start, step in zip(starts, steps[label], strict=True)
            ]
        if any(map(math.isnan, itertools.chain(*values.values()))):
            continue
        base = next(iter(values.values()))
        found += [
            AtEqualMovement(
                metric=metric,
                arm=label,
                steps=steps[label],
                values=own,
                differences=[a - b for a, b in zip(own, base, strict=True)],
            )
            for label, own in values.items()
        ]
    return found


def find_step(run: RunMovement, distance: float) -> float:
    """Returns after how many updates a run first reached a distance.

    Between checkpoints the distance is taken to grow linearly, from 0 before RL.
    """
    if distance <= 0:
        return 0.0
    steps, distances = [0, *run.steps], [0.0, *run.distances]
    for (last, step), (near, far) in zip(
        itertools.pairwise(steps), itertools.pairwise(distances), strict=True
    ):
        if far >= distance > near:
            return last + (step - last) * (distance - near) / (far - near)
    return float(steps[-1])


def value_at(series: Series, step: float) -> float:
    """Returns a series' value after `step` updates, by linear interpolation.

    The last value counts for one update more, because training samples no completions
    of the last policy. Outside of that it is NaN.
    """
    at, values = series
    if len(at) == 0 or not at[0] <= step <= at[-1] + 1:
        return math.nan
    return float(np.interp(step, at, values))


def read_series(run: RunMovement, metric: str) -> Series:
    """Returns a metric of a run by number of updates, with pass@k before RL at 0."""
    artifacts = read_run(str(run.workdir))
    steps, values = artifacts.series("train", metric)
    at, known = [step + METRICS[metric] for step in steps], [*values]
    name, _, k = metric.partition("@")
    before = artifacts.summary.get("eval", {}).get("before", {}).get("pass@k", {})
    if name == "eval/pass" and k in before:
        at, known = [0, *at], [before[k]["mean"], *known]
    return at, known


def equal_movement_table(found: Sequence[AtEqualMovement]) -> Table:
    """Returns a row for each metric and arm, with intervals over starts."""
    return Table(
        head=["at equal movement", "arm", "steps", "value", "minus the first arm"],
        rows=[
            [
                each.metric,
                each.arm,
                f"{np.mean(each.steps):.0f}",
                _format(t_interval(each.values)),
                _format(t_interval(each.differences)) if any(each.differences) else "",
            ]
            for each in found
        ],
    )


def _format(interval: Interval) -> str:
    value, low, high = (f"{number:.3f}" for number in interval)
    return value if math.isnan(interval.low) else f"{value} [{low}, {high}]"
