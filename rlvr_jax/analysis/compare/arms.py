"""Compares runs side by side, with intervals: `python -m rlvr_jax.analysis compare`.

Runs with the same config and several seeds are one arm. How a difference gets its
interval (`method`) depends on what the two arms share:

    problem     one run each, on the same held-out problems: interval of the
                differences, over problems
    unpaired    one run each, on different problems: each side resampled separately
    seed        three or more runs each, with the same seeds: t-interval of the
                differences
    welch       three or more runs each, with different seeds: Welch's t-interval
    none        two seeds, one run against several, a single problem, a number that a
                run gives only once, or unbounded numbers that are all equal: no
                interval

Two seeds have no interval, because Student's t with one degree of freedom is 12.7: if
they differ by 5 points, the interval is 64 points wide. Their own values are shown.

Over problems, fractions use `mean_interval`, and lengths use Student's or Welch's t.

Each run's bands come from its own policy before RL, so two arms are paired within a
band only if their starting policies answered alike.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.config_io import diff_json
from job_jax.flags import UsageError
from job_jax.resampling import Interval
from rlvr_jax.analysis.compare.metric import (
    BOUNDS,
    FRACTION,
    LENGTH,
    METRIC_NAMES,
    Metric,
    Score,
)
from rlvr_jax.analysis.compare.run_metrics import RunMetrics, measure_run
from rlvr_jax.metrics.bootstrap import (
    mean_difference,
    mean_interval,
    t_interval,
    welch_interval,
)
from rlvr_jax.metrics.crossing import find_crossing
from rlvr_jax.report.run_files import NotAWorkdirError, RunArtifacts, read_run
from rlvr_jax.report.tables import mean
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.workdir import MUTABLE_SECTIONS

MIN_SEEDS = 3  # with an interval; see above
_RESAMPLES = 2000
# Sections that every config of rlvr_jax has.
_REQUIRED_SECTIONS = frozenset({"seed", "task", "train", "log"})
# Runs that differ only in these (seed, label, how they are executed) are one arm.
_IGNORED_FIELDS = (
    "seed",
    "name",
    *(section.rstrip(".") for section in MUTABLE_SECTIONS),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentArm:
    """Runs with one config and different seeds, labelled like the first run."""

    label: str
    runs: list[RunMetrics]

    @property
    def seeds(self) -> list[Any]:
        """Returns the seeds, in the order of the runs."""
        return [run.run.config["seed"] for run in self.runs]

    def scores(self, metric: Metric) -> dict[Any, Score]:
        """Returns the score by seed, for the runs that have it."""
        return {
            run.run.config["seed"]: run.scores[metric]
            for run in self.runs
            if metric in run.scores
        }


def compare_runs(workdirs: Sequence[str], *, baseline: str = "") -> dict[str, Any]:
    """Returns `compare_arms` for the arms that `read_arms` finds in the workdirs."""
    return compare_arms(read_arms(workdirs, baseline=baseline))


def read_arms(workdirs: Sequence[str], *, baseline: str = "") -> list[ExperimentArm]:
    """Returns the runs of workdirs as arms.

    The first arm holds `baseline`, by default the first workdir. Raises UsageError if a
    workdir is given twice or `baseline` is not one of them, and NotAWorkdirError if a
    directory holds no run.
    """
    paths = [local_run(workdir).resolve() for workdir in workdirs]
    twice = [
        name
        for name, path in zip(workdirs, paths, strict=True)
        if paths.count(path) > 1
    ]
    if twice:
        raise UsageError(f"workdir {twice[0]} is given twice; give each one once")
    if len(paths) < 2:
        raise UsageError(f"compare needs at least two workdirs; got {workdirs[0]}")
    first = local_run(baseline).resolve() if baseline else paths[0]
    if first not in paths:
        raise UsageError(
            f"--baseline={baseline} is not one of the workdirs: {', '.join(workdirs)}"
        )
    order = [first, *(path for path in paths if path != first)]
    names = dict(zip(paths, workdirs, strict=True))
    groups = group_runs([read_training_run(names[path]) for path in order])
    return [
        ExperimentArm(label=label, runs=[measure_run(run) for run in runs])
        for label, runs in groups.items()
    ]


def compare_arms(arms: Sequence[ExperimentArm]) -> dict[str, Any]:
    """Returns the comparison as JSON: arms, metrics with intervals, and notes.

    Differences are from the first arm.
    """
    base, *others = arms
    metrics = list(dict.fromkeys(m for a in arms for run in a.runs for m in run.scores))
    return {
        "baseline": base.label,
        "arms": [_describe_arm(arm, base) for arm in arms],
        "metrics": [
            {
                **metric._asdict(),
                "values": {arm.label: _arm_value(arm, metric) for arm in arms},
                "seeds": {
                    arm.label: {
                        str(seed): score.mean
                        for seed, score in arm.scores(metric).items()
                    }
                    for arm in arms
                },
                "differences": {
                    arm.label: _arm_difference(arm, base, metric) for arm in others
                },
            }
            for metric in sorted(metrics, key=_sort_key(metrics))
        ],
        "crossings": _crossings(arms),
        "notes": [note for arm in arms for note in _notes(arm, base)],
    }


def read_training_run(workdir: str) -> RunArtifacts:
    """Returns the `rlvr_jax.main` run in `workdir`. Raises NotAWorkdirError."""
    run = read_run(local_run(workdir))
    if lacking := _REQUIRED_SECTIONS - run.metadata.get("config", {}).keys():
        raise NotAWorkdirError(
            f"{workdir}/config.json is not from a run of rlvr_jax: its config has no "
            + ", ".join(sorted(lacking))
        )
    return run


def group_runs(runs: Sequence[RunArtifacts]) -> dict[str, list[RunArtifacts]]:
    """Returns the runs grouped by config, by label; a group has each seed once.

    A second run with the same config and seed becomes a separate group. The label is
    the name of the first run's directory, or its path if the name is not unique.
    """
    groups: list[tuple[str, list[RunArtifacts]]] = []
    for run in runs:
        key = json.dumps(compared_config(run.config), sort_keys=True)
        for other_key, group in groups:
            seeds = [other.config["seed"] for other in group]
            if other_key == key and run.config["seed"] not in seeds:
                group.append(run)
                break
        else:
            groups.append((key, [run]))
    names = [group[0].path.resolve().name for _, group in groups]
    return {
        name if names.count(name) == 1 else str(group[0].path): group
        for name, (_, group) in zip(names, groups, strict=True)
    }


def compared_config(config: Mapping[str, object]) -> dict[str, Any]:
    """Returns the fields of a JSON config that define an arm: no seed, no name."""
    return {k: v for k, v in config.items() if k not in _IGNORED_FIELDS}


def _sort_key(metrics: Sequence[Metric]) -> Callable[[Metric], Any]:
    """Returns the sort key: by name, by group in order of appearance, by k."""
    groups = list(dict.fromkeys((m.grouping, m.group) for m in metrics))
    return lambda m: (
        METRIC_NAMES.index(m.name),
        groups.index((m.grouping, m.group)),
        m.k or 0,
    )


def _describe_arm(arm: ExperimentArm, base: ExperimentArm) -> dict[str, Any]:
    return {
        "label": arm.label,
        "workdirs": [str(run.run.path) for run in arm.runs],
        "seeds": arm.seeds,
        "differs": diff_json(
            compared_config(base.runs[0].run.config),
            compared_config(arm.runs[0].run.config),
        ),
    }


def _arm_value(arm: ExperimentArm, metric: Metric) -> dict[str, Any] | None:
    """Returns the arm's mean with its interval (null ends if none), and its size.

    The size is the number of runs and, for a single run, of problems.
    """
    scores = [*arm.scores(metric).values()]
    if not scores:
        return None
    if len(scores) > 1:
        interval = _interval_over_seeds([score.mean for score in scores])
        interval = _clip(interval, BOUNDS.get(metric.name))
        return {**interval.to_json(), "runs": len(scores)}
    (only,) = scores
    if len(arm.runs) > 1 or only.by_problem is None:
        unknown = Interval(only.mean, np.nan, np.nan)
        known = unknown if len(arm.runs) > 1 else only.interval or unknown
        return {**known.to_json(), "runs": 1}
    values = [*only.by_problem.values()]
    interval = _interval_over_problems(values, BOUNDS.get(metric.name))
    return {**interval.to_json(), "runs": 1, "problems": len(values)}


def _interval_over_seeds(values: Sequence[float]) -> Interval:
    """Returns the mean over seeds, with Student's interval if there are enough."""
    if len(values) < MIN_SEEDS:
        return Interval(mean(values), np.nan, np.nan)
    return t_interval(values)


def _interval_over_problems(
    values: Sequence[float], bounds: tuple[float, float] | None
) -> Interval:
    """Returns the mean over problems with its interval; only fractions have bounds."""
    if bounds is None:
        return t_interval(values)
    return mean_interval(values, bounds=bounds, resamples=_RESAMPLES, seed=0)


def _arm_difference(
    arm: ExperimentArm, base: ExperimentArm, metric: Metric
) -> dict[str, Any] | None:
    """Returns the arm's mean minus the baseline's, with its interval and method.

    If the arms have the same seeds, `seeds` holds the difference of each.
    """
    ours, theirs = arm.scores(metric), base.scores(metric)
    if not ours or not theirs:
        return None
    means = [[score.mean for score in side.values()] for side in (ours, theirs)]
    interval = Interval(mean(means[0]) - mean(means[1]), np.nan, np.nan)
    method, by_seed = "none", {}
    shared = [seed for seed in ours if seed in theirs]
    if len(shared) > 1 and set(arm.seeds) == set(base.seeds):
        by_seed = {"seeds": {str(s): ours[s].mean - theirs[s].mean for s in shared}}
        interval = _interval_over_seeds([*by_seed["seeds"].values()])
        method = "seed"
    elif min(len(ours), len(theirs)) >= MIN_SEEDS:
        interval, method = welch_interval(*means), "welch"
    elif len(arm.runs) == len(base.runs) == 1:
        interval, method = _problem_difference(
            *ours.values(), *theirs.values(), metric=metric
        )
    interval = _clip(interval, _difference_bounds(metric))
    known = not np.isnan(interval.low)
    return {**interval.to_json(), "method": method if known else "none", **by_seed}


def _crossings(arms: Sequence[ExperimentArm]) -> list[dict[str, Any]]:
    """Returns where pass@k curves cross: each arm with itself before RL, then the base.

    Only arms with a single run have crossings. `crossing` is null if neither curve
    leads at k = 1 or if there is only one problem.
    """
    base = arms[0]
    pairs = []
    for arm in arms:
        if len(arm.runs) == 1 and arm.runs[0].after:
            run = arm.runs[0]
            pairs.append((arm.label, f"{arm.label} before RL", run.after, run.before))
            if arm is not base and len(base.runs) == 1:
                pairs.append((arm.label, base.label, run.after, base.runs[0].after))
    return [
        {
            "curves": [name, other],
            "crossing": crossing.to_json() if crossing else None,
        }
        for name, other, ours, theirs in pairs
        if ours and theirs
        for crossing in [find_crossing(ours, theirs, resamples=_RESAMPLES, seed=0)]
    ]


def _clip(interval: Interval, bounds: tuple[float, float] | None) -> Interval:
    """Returns the interval clipped to the bounds, which Student's t ignores."""
    if bounds is None:
        return interval
    low, high = np.clip(interval[1:], *bounds)
    return Interval(interval.value, low, high)


def _difference_bounds(metric: Metric) -> tuple[float, float] | None:
    """Returns the bounds of a difference between two values of a metric."""
    if (bounds := BOUNDS.get(metric.name)) is None:
        return None
    low, high = bounds
    return low - high, high - low


def _problem_difference(
    ours: Score, theirs: Score, *, metric: Metric
) -> tuple[Interval, str]:
    """Returns the difference of two runs' means over problems, and its method."""
    a, b = ours.by_problem, theirs.by_problem
    if a is None or b is None:
        return Interval(ours.mean - theirs.mean, np.nan, np.nan), "none"
    if a.keys() == b.keys():
        values = [a[name] - b[name] for name in a]
        return _interval_over_problems(values, _difference_bounds(metric)), "problem"
    sides = [*a.values()], [*b.values()]
    if BOUNDS.get(metric.name) != FRACTION:
        return welch_interval(*sides), "unpaired"
    return mean_difference(*sides, resamples=_RESAMPLES, seed=0), "unpaired"


def _notes(arm: ExperimentArm, base: ExperimentArm) -> list[str]:
    """Returns warnings about an arm: missing data, and why it is not paired."""
    notes = [f"{m.run.path}: {what}" for m in arm.runs for what in m.missing]
    if any(len(run.after) == 1 for run in arm.runs):
        notes.append(
            f"{arm.label} was evaluated on one problem, which says nothing about others"
        )
    if arm is base:
        return notes
    smaller, larger = sorted((arm, base), key=lambda arm: len(arm.runs))
    if len(smaller.runs) == 1 and len(larger.runs) > 1:
        notes.append(
            f"{smaller.label} is one run and {larger.label} has several seeds: "
            "differences between them have no interval"
        )
    if len(smaller.runs) > 1 and set(arm.seeds) != set(base.seeds):
        notes.append(
            f"{arm.label} and {base.label} have different seeds: their differences "
            "are unpaired"
        )
    if len(larger.runs) > 1:
        return notes
    ids, base_ids = (_problem_ids(side.runs[0]) for side in (arm, base))
    if ids and base_ids and ids != base_ids:
        notes.append(
            f"{arm.label} and {base.label} were evaluated on different problems "
            f"({len(ids & base_ids)} of {len(ids)} are the same): their differences "
            "are unpaired"
        )
    return notes


def _problem_ids(run: RunMetrics) -> set[str]:
    """Returns the ids of a run's held-out problems, or an empty set if unknown."""
    score = run.scores.get(Metric(LENGTH))
    return set(score.by_problem or ()) if score is not None else set()
