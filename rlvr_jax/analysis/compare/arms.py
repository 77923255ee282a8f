"""Runs side by side, with intervals: `python -m rlvr_jax.analysis compare`.

Runs of one config and several seeds are one arm. How sure a difference is depends on
what two arms share, its `method`:

    problem     one run each, on the same held-out problems: bootstrap of the problems'
                differences
    unpaired    one run each, on other problems: each side resampled apart
    seed        several runs each, of the same seeds: t-interval of the differences
    welch       several runs each, their seeds not the same: Welch's t-interval
    none        one run against several, a single problem, or a number that a run gives
                once: no interval

Each run's bands are those of its own policy before RL, so two arms are paired within a
band only if they started from policies that answered alike.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from job_jax.command import UsageError
from job_jax.config_io import diff_json
from rlvr_jax.analysis.compare.run_metrics import (
    FRACTIONS,
    LENGTH,
    METRIC_NAMES,
    Metric,
    RunMetrics,
    Score,
    measure_run,
)
from rlvr_jax.analysis.workdir import NotAWorkdirError, RunArtifacts, read_run
from rlvr_jax.metrics.bootstrap import (
    Interval,
    bootstrap_difference,
    bootstrap_interval,
    t_interval,
    welch_interval,
)
from rlvr_jax.run.workdir import MUTABLE_SECTIONS

_RESAMPLES = 2000
# Sections that a config of rlvr_jax has.
_REQUIRED_SECTIONS = frozenset({"seed", "task", "train", "log"})
# Runs that differ in these alone (seed, label, how they are executed) are one arm.
_IGNORED_FIELDS = (
    "seed",
    "name",
    *(section.rstrip(".") for section in MUTABLE_SECTIONS),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentArm:
    """Runs of one config, no two of one seed; their label is the first one's."""

    label: str
    runs: list[RunMetrics]

    @property
    def seeds(self) -> list[Any]:
        """Returns the seeds, in the order of the runs."""
        return [run.run.config["seed"] for run in self.runs]

    def scores(self, metric: Metric) -> dict[Any, Score]:
        """Returns the score of each seed's run that has it."""
        return {
            run.run.config["seed"]: run.scores[metric]
            for run in self.runs
            if metric in run.scores
        }


def compare_runs(
    workdirs: Sequence[str], *, baseline: str | None = None
) -> dict[str, Any]:
    """Returns the comparison as JSON: arms, metrics with intervals, and notes.

    The first arm is that of `baseline`, or else of the first workdir. Raises UsageError
    (NotAWorkdirError) where a directory holds no run, is given twice or is no baseline.
    """
    paths = [pathlib.Path(workdir).resolve() for workdir in workdirs]
    if len(set(paths)) < max(2, len(paths)):
        raise UsageError(
            "compare needs two workdirs or more, each given once; got "
            + ", ".join(workdirs)
        )
    first = paths[0] if baseline is None else pathlib.Path(baseline).resolve()
    if first not in paths:
        raise UsageError(
            f"--baseline={baseline} is none of the workdirs: {', '.join(workdirs)}"
        )
    order = [first, *(path for path in paths if path != first)]
    names = dict(zip(paths, workdirs, strict=True))
    arms = _group_into_arms([_read_run(names[path]) for path in order])
    base, *others = arms
    metrics = list(dict.fromkeys(m for a in arms for run in a.runs for m in run.scores))
    return {
        "baseline": base.label,
        "arms": [_describe_arm(arm, base) for arm in arms],
        "metrics": [
            {
                **metric._asdict(),
                "values": {arm.label: _arm_value(arm, metric) for arm in arms},
                "differences": {
                    arm.label: _arm_difference(arm, base, metric) for arm in others
                },
            }
            for metric in sorted(metrics, key=_sort_key(metrics))
        ],
        "notes": [note for arm in arms for note in _notes(arm, base)],
    }


def _read_run(workdir: str) -> RunArtifacts:
    """Returns the run in `workdir`. Raises NotAWorkdirError."""
    run = read_run(workdir)
    if lacking := _REQUIRED_SECTIONS - run.metadata.get("config", {}).keys():
        raise NotAWorkdirError(
            f"{workdir}/config.json is of no run of rlvr_jax: its config has no "
            + ", ".join(sorted(lacking))
        )
    return run


def _group_into_arms(runs: Sequence[RunArtifacts]) -> list[ExperimentArm]:
    """Returns the runs by config, each seed once an arm.

    A run whose config and seed an arm holds already is an arm of its own.
    """
    groups: list[tuple[str, list[RunArtifacts]]] = []
    for run in runs:
        key = json.dumps(_compared_config(run), sort_keys=True)
        for other_key, group in groups:
            seeds = [other.config["seed"] for other in group]
            if other_key == key and run.config["seed"] not in seeds:
                group.append(run)
                break
        else:
            groups.append((key, [run]))
    names = [group[0].path.resolve().name for _, group in groups]
    return [
        ExperimentArm(
            label=name if names.count(name) == 1 else str(group[0].path),
            runs=[measure_run(run) for run in group],
        )
        for name, (_, group) in zip(names, groups, strict=True)
    ]


def _compared_config(run: RunArtifacts) -> dict[str, Any]:
    return {k: v for k, v in run.config.items() if k not in _IGNORED_FIELDS}


def _sort_key(metrics: Sequence[Metric]) -> Callable[[Metric], Any]:
    """Returns the sorting key: by name, by group in order of appearance, by k."""
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
            _compared_config(base.runs[0].run), _compared_config(arm.runs[0].run)
        ),
    }


def _arm_value(arm: ExperimentArm, metric: Metric) -> dict[str, Any] | None:
    """Returns the arm's mean with its interval (null ends if none), and its size.

    The size is how many runs and, for a single run, how many problems.
    """
    scores = [*arm.scores(metric).values()]
    if not scores:
        return None
    if len(scores) > 1:
        interval = t_interval([score.mean for score in scores])
        return {**_clip_to_bounds(interval, metric, lower=0.0), "runs": len(scores)}
    (only,) = scores
    value: dict[str, Any] = {"mean": only.mean, "low": None, "high": None, "runs": 1}
    if only.by_problem is not None:
        values = [*only.by_problem.values()]
        value["problems"] = len(values)
        if len(values) > 1:
            value |= bootstrap_interval(values, resamples=_RESAMPLES, seed=0)
    elif only.interval is not None:
        value |= only.interval
    return value


def _arm_difference(
    arm: ExperimentArm, base: ExperimentArm, metric: Metric
) -> dict[str, Any] | None:
    """Returns the arm's mean less the baseline's, its interval and its method."""
    ours, theirs = arm.scores(metric), base.scores(metric)
    if not ours or not theirs:
        return None
    interval: Interval | None = None
    method = "none"
    means = [[score.mean for score in side.values()] for side in (ours, theirs)]
    if len(ours) > 1 and ours.keys() == theirs.keys():
        interval = t_interval([ours[s].mean - theirs[s].mean for s in ours])
        method = "seed"
    elif len(ours) > 1 and len(theirs) > 1:
        interval, method = welch_interval(*means), "welch"
    elif len(ours) == len(theirs) == 1:
        interval, method = _problem_difference(*ours.values(), *theirs.values())
    if interval is None:
        a, b = (sum(side) / len(side) for side in means)
        return {"mean": a - b, "low": None, "high": None, "method": method}
    return {**_clip_to_bounds(interval, metric, lower=-1.0), "method": method}


def _clip_to_bounds(interval: Interval, metric: Metric, *, lower: float) -> Interval:
    """Returns a fraction's interval clipped to its range, which Student's t ignores."""
    if metric.name not in FRACTIONS:
        return interval
    return {
        "mean": interval["mean"],
        "low": max(interval["low"], lower),
        "high": min(interval["high"], 1.0),
    }


def _problem_difference(ours: Score, theirs: Score) -> tuple[Interval | None, str]:
    """Returns the difference of two runs' means over problems."""
    a, b = ours.by_problem, theirs.by_problem
    if a is None or b is None or min(len(a), len(b)) < 2:
        return None, "none"
    if a.keys() == b.keys():
        values = [a[name] - b[name] for name in a]
        return bootstrap_interval(values, resamples=_RESAMPLES, seed=0), "problem"
    sides = [*a.values()], [*b.values()]
    return bootstrap_difference(*sides, resamples=_RESAMPLES, seed=0), "unpaired"


def _notes(arm: ExperimentArm, base: ExperimentArm) -> list[str]:
    """Returns warnings about an arm: data that is missing, and why it is not paired."""
    notes = [f"{m.run.path}: {what}" for m in arm.runs for what in m.missing]
    if arm is base:
        return notes
    smaller, larger = sorted((arm, base), key=lambda arm: len(arm.runs))
    if len(smaller.runs) == 1 and len(larger.runs) > 1:
        notes.append(
            f"{smaller.label} is one run and {larger.label} several seeds: differences "
            "between them have no interval"
        )
    if len(smaller.runs) > 1 and set(arm.seeds) != set(base.seeds):
        notes.append(
            f"{arm.label} and {base.label} are not of the same seeds: their "
            "differences are unpaired"
        )
    if len(larger.runs) > 1:
        return notes
    ids, base_ids = (_problem_ids(side.runs[0]) for side in (arm, base))
    if ids and base_ids and ids != base_ids:
        notes.append(
            f"{arm.label} was evaluated on other problems than {base.label} "
            f"({len(ids & base_ids)} of {len(ids)} are the same): their differences "
            "are unpaired"
        )
    return notes


def _problem_ids(run: RunMetrics) -> set[str]:
    """Returns the ids of the held-out problems of a run, none if not known."""
    score = run.scores.get(Metric(LENGTH))
    return set(score.by_problem or ()) if score is not None else set()
