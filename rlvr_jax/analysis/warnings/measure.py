"""Which training metrics had moved before held-out pass@1 fell, and by how many steps.

A run has *fallen* at the first of two consecutive evaluations that are more than
`margin` below pass@1 before RL. A training metric has *moved* when the mean of its last
`WINDOW` steps is more than `LIMIT` standard errors from the mean of its first `WINDOW`.
The standard errors come from differences of neighboring steps (von Neumann's estimate,
which a trend hardly changes). Both rules are ours. A move can be seen only from step
2 * `WINDOW`, and a fall only at an evaluation.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from job_jax.flags import UsageError
from rlvr_jax.report.run_files import RunArtifacts

WINDOW = 5  # steps
LIMIT = 4.0  # standard errors
MARGIN = 0.05  # of pass@1

Direction = Literal["rises", "falls"]

_PASS = "eval/pass@1"
# Metrics that every step of RL logs at no extra cost.
_WATCHED = (
    r"((?:rollout|reward|groups|behavior|format|loss|logprob_mismatch|optimizer)/.*)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchedRun:
    """A run that was evaluated during training, with steps counted from 1.

    `fell` is the step of the evaluation at which pass@1 had fallen, None if it never
    fell. `moved` maps (metric, direction) to the step at which the metric had moved.
    """

    name: str
    before: float
    lowest: float
    fell: int | None
    watched: Sequence[str]
    moved: Mapping[tuple[str, Direction], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricWarning:
    """One metric in one direction, as a warning over several runs.

    `leads` are the steps from its move to the fall, in runs that fell and in which it
    moved; negative if it moved afterwards. `false_alarms` counts the runs in which it
    moved without a fall.
    """

    metric: str
    direction: Direction
    leads: Sequence[int]
    false_alarms: int

    @property
    def ahead(self) -> int:
        """Returns the number of runs in which it moved before the measured fall."""
        return sum(lead > 0 for lead in self.leads)

    @property
    def median_lead(self) -> float:
        """Returns the median of `leads`."""
        return statistics.median(self.leads)


def watch_run(run: RunArtifacts, *, name: str, margin: float) -> WatchedRun:
    """Returns when a run's pass@1 fell and when its metrics moved.

    Raises UsageError if it is unfinished, or was evaluated less than twice in training.
    """
    steps, scores = run.series("train", _PASS)
    before = run.summary.get("eval", {}).get("before")
    if before is None or len(scores) < 2:
        raise UsageError(
            f"{run.path} needs an evaluation before RL and two during training; train "
            "to the end with --config.eval.every=5"
        )
    start = float(before["pass@k"]["1"]["mean"])
    fall = find_fall(scores, start, margin=margin)
    moved: dict[tuple[str, Direction], int] = {}
    watched = [
        metric
        for metric in run.match_metrics("train", _WATCHED)
        if metric != "optimizer/learning_rate"  # a schedule
    ]
    for metric in watched:
        at, values = run.series("train", metric)
        for direction, count in find_moves(values).items():
            moved[metric, direction] = int(at[count - 1]) + 1
    return WatchedRun(
        name=name,
        before=start,
        lowest=float(min(scores)),
        fell=None if fall is None else int(steps[fall]) + 1,
        watched=watched,
        moved=moved,
    )


def find_fall(scores: Sequence[float], start: float, *, margin: float) -> int | None:
    """Returns the first of two consecutive scores below start by more than margin."""
    low = [score < start - margin for score in scores]
    pairs = enumerate(itertools.pairwise(low))
    return next((at for at, both in pairs if all(both)), None)


def find_moves(values: Sequence[float]) -> dict[Direction, int]:
    """Returns the number of values after which they had moved, by direction.

    Returns {} if any value is not finite.
    """
    series = np.asarray(values, dtype=np.float64)
    moves: dict[Direction, int] = {}
    if not np.isfinite(series).all():
        return moves
    for count in range(2 * WINDOW, len(series) + 1):
        change = series[count - WINDOW : count].mean() - series[:WINDOW].mean()
        noise = np.sqrt(np.mean(np.diff(series[:count]) ** 2) / 2)
        error = noise * np.sqrt(2 / WINDOW)
        if abs(change) > LIMIT * error:
            moves.setdefault("rises" if change > 0 else "falls", count)
    return moves


def find_warnings(runs: Sequence[WatchedRun]) -> list[MetricWarning]:
    """Returns the metrics that moved before a fall.

    Those ahead in most runs come first, then those with the fewest false alarms.
    """
    fallen = [run for run in runs if run.fell is not None]
    level = [run for run in runs if run.fell is None]
    keys = sorted({key for run in fallen for key in run.moved})
    warnings = [
        MetricWarning(
            metric=key[0],
            direction=key[1],
            leads=[
                run.fell - run.moved[key]
                for run in fallen
                if run.fell is not None and key in run.moved
            ],
            false_alarms=sum(key in run.moved for run in level),
        )
        for key in keys
    ]
    return sorted(
        (warning for warning in warnings if warning.ahead),
        key=lambda w: (-w.ahead, w.false_alarms, w.metric),
    )
