"""Runs side by side, with intervals: `python -m rlvr_jax.analysis compare`.

Runs of one config and several seeds are one arm. How sure a difference is depends on
what two arms share, its `method`:

    problem     one run each, on the same held-out problems: bootstrap of the problems'
                differences
    unpaired    one run each, on other problems: each side resampled apart
    seed        several runs each, of the same seeds: t-interval of the differences
    welch       several runs each, their seeds not the same: Welch's t-interval
    none        one run against several, a single problem, or a figure that a run gives
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
from rlvr_jax.analysis.measures import (
    LENGTH,
    NAMES,
    SHARES,
    Measure,
    Measured,
    Score,
    measure,
)
from rlvr_jax.analysis.workdir import NotAWorkdirError, Run, read_run
from rlvr_jax.statistics import (
    Interval,
    bootstrap_difference,
    bootstrap_interval,
    t_interval,
    welch_interval,
)
from rlvr_jax.workdir import MAY_CHANGE

_RESAMPLES = 2000
# What does not make another arm of a run: its seed, its label, how it is executed.
_SECTIONS = frozenset({"seed", "task", "train", "log"})
_NOT_COMPARED = ("seed", "name", *(section.rstrip(".") for section in MAY_CHANGE))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs of one config, no two of one seed; their label is the first one's."""

    label: str
    runs: list[Measured]

    @property
    def seeds(self) -> list[Any]:
        """Returns the seeds, in the order of the runs."""
        return [each.run.config["seed"] for each in self.runs]

    def scores(self, what: Measure) -> dict[Any, Score]:
        """Returns the score of each seed's run that has it."""
        return {
            each.run.config["seed"]: each.scores[what]
            for each in self.runs
            if what in each.scores
        }


def compare(workdirs: Sequence[str], *, baseline: str | None = None) -> dict[str, Any]:
    """Returns the comparison as JSON: arms, measures with intervals, and what to mind.

    The first arm is that of `baseline`, or else of the first workdir. Raises UsageError
    (NotAWorkdirError) where a directory holds no run, is given twice or is no baseline.
    """
    paths = [pathlib.Path(each).resolve() for each in workdirs]
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
    named = dict(zip(paths, workdirs, strict=True))
    arms = _arms([_read(named[path]) for path in order])
    base, *others = arms
    measures = list(dict.fromkeys(w for a in arms for r in a.runs for w in r.scores))
    return {
        "baseline": base.label,
        "arms": [_described(arm, base) for arm in arms],
        "measures": [
            {
                **what._asdict(),
                "values": {arm.label: _value(arm, what) for arm in arms},
                "differences": {
                    arm.label: _difference(arm, base, what) for arm in others
                },
            }
            for what in sorted(measures, key=_order(measures))
        ],
        "notes": [note for arm in arms for note in _notes(arm, base)],
    }


def _read(workdir: str) -> Run:
    """Returns the run in `workdir`. Raises NotAWorkdirError."""
    run = read_run(workdir)
    if lacking := _SECTIONS - run.record.get("config", {}).keys():
        raise NotAWorkdirError(
            f"{workdir}/config.json is of no run of rlvr_jax: its config has no "
            + ", ".join(sorted(lacking))
        )
    return run


def _arms(runs: Sequence[Run]) -> list[Arm]:
    """Returns the runs by config, each seed once an arm.

    A run whose config and seed an arm holds already is an arm of its own.
    """
    groups: list[tuple[str, list[Run]]] = []
    for run in runs:
        key = json.dumps(_compared(run), sort_keys=True)
        for known, group in groups:
            seeds = [each.config["seed"] for each in group]
            if known == key and run.config["seed"] not in seeds:
                group.append(run)
                break
        else:
            groups.append((key, [run]))
    names = [group[0].path.resolve().name for _, group in groups]
    return [
        Arm(
            label=name if names.count(name) == 1 else str(group[0].path),
            runs=[measure(run) for run in group],
        )
        for name, (_, group) in zip(names, groups, strict=True)
    ]


def _compared(run: Run) -> dict[str, Any]:
    return {k: v for k, v in run.config.items() if k not in _NOT_COMPARED}


def _order(measures: Sequence[Measure]) -> Callable[[Measure], Any]:
    """Returns the sorting key: by name, by cut and part as first met, by k."""
    parts = list(dict.fromkeys((each.cut, each.of) for each in measures))
    return lambda m: (NAMES.index(m.name), parts.index((m.cut, m.of)), m.k or 0)


def _described(arm: Arm, base: Arm) -> dict[str, Any]:
    return {
        "label": arm.label,
        "workdirs": [str(each.run.path) for each in arm.runs],
        "seeds": arm.seeds,
        "differs": diff_json(_compared(base.runs[0].run), _compared(arm.runs[0].run)),
    }


def _value(arm: Arm, what: Measure) -> dict[str, Any] | None:
    """Returns the arm's value with its interval, null ends where it has none.

    Beside it, how many runs and, of one run, how many problems it is of.
    """
    scores = [*arm.scores(what).values()]
    if not scores:
        return None
    if len(scores) > 1:
        found = t_interval([score.mean for score in scores])
        return {**_within(found, what, least=0.0), "runs": len(scores)}
    (only,) = scores
    value: dict[str, Any] = {"mean": only.mean, "low": None, "high": None, "runs": 1}
    if only.by_problem is not None:
        each = [*only.by_problem.values()]
        value["problems"] = len(each)
        if len(each) > 1:
            value |= bootstrap_interval(each, resamples=_RESAMPLES, seed=0)
    elif only.stated is not None:
        value |= only.stated
    return value


def _difference(arm: Arm, base: Arm, what: Measure) -> dict[str, Any] | None:
    """Returns the arm's mean less the baseline's, its interval and how it was found."""
    ours, theirs = arm.scores(what), base.scores(what)
    if not ours or not theirs:
        return None
    found: Interval | None = None
    how = "none"
    means = [[score.mean for score in side.values()] for side in (ours, theirs)]
    if len(ours) > 1 and ours.keys() == theirs.keys():
        found = t_interval([ours[s].mean - theirs[s].mean for s in ours])
        how = "seed"
    elif len(ours) > 1 and len(theirs) > 1:
        found, how = welch_interval(*means), "welch"
    elif len(ours) == len(theirs) == 1:
        found, how = _between(*ours.values(), *theirs.values())
    if found is None:
        a, b = (sum(side) / len(side) for side in means)
        return {"mean": a - b, "low": None, "high": None, "method": how}
    return {**_within(found, what, least=-1.0), "method": how}


def _within(found: Interval, what: Measure, *, least: float) -> Interval:
    """Returns a share's interval cut at its bounds: Student's knows of none."""
    if what.name not in SHARES:
        return found
    return {
        "mean": found["mean"],
        "low": max(found["low"], least),
        "high": min(found["high"], 1.0),
    }


def _between(ours: Score, theirs: Score) -> tuple[Interval | None, str]:
    """Returns the difference of two runs' means over problems."""
    a, b = ours.by_problem, theirs.by_problem
    if a is None or b is None or min(len(a), len(b)) < 2:
        return None, "none"
    if a.keys() == b.keys():
        values = [a[name] - b[name] for name in a]
        return bootstrap_interval(values, resamples=_RESAMPLES, seed=0), "problem"
    sides = [*a.values()], [*b.values()]
    return bootstrap_difference(*sides, resamples=_RESAMPLES, seed=0), "unpaired"


def _notes(arm: Arm, base: Arm) -> list[str]:
    """Returns what to mind of an arm: what it lacks, and why it is not paired."""
    notes = [f"{m.run.path}: {what}" for m in arm.runs for what in m.missing]
    if arm is base:
        return notes
    one, several = sorted((arm, base), key=lambda each: len(each.runs))
    if len(one.runs) == 1 and len(several.runs) > 1:
        notes.append(
            f"{one.label} is one run and {several.label} several seeds: differences "
            "between them have no interval"
        )
    if len(one.runs) > 1 and set(arm.seeds) != set(base.seeds):
        notes.append(
            f"{arm.label} and {base.label} are not of the same seeds: their "
            "differences are unpaired"
        )
    if len(several.runs) > 1:
        return notes
    asked, known = (_problems(each.runs[0]) for each in (arm, base))
    if asked and known and asked != known:
        notes.append(
            f"{arm.label} was evaluated on other problems than {base.label} "
            f"({len(asked & known)} of {len(asked)} are the same): their differences "
            "are unpaired"
        )
    return notes


def _problems(measured: Measured) -> set[str]:
    """Returns the ids of the problems of a run's evaluation, none if untold."""
    score = measured.scores.get(Measure(LENGTH))
    return set(score.by_problem or ()) if score is not None else set()
