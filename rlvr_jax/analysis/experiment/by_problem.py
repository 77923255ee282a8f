"""An experiment's pass@1 by problem, and its intervals over seeds and problems."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from job_jax.resampling import Interval
from rlvr_jax.analysis.compare.arms import MIN_SEEDS, ExperimentArm
from rlvr_jax.analysis.compare.metric import BOUNDS, GAIN, PASS
from rlvr_jax.analysis.compare.rows import PERCENT
from rlvr_jax.analysis.compare.text import format_value
from rlvr_jax.analysis.experiment.slopes import weigh_arms
from rlvr_jax.config.experiment import Experiment
from rlvr_jax.metrics.crossed import crossed_interval
from rlvr_jax.metrics.crossing import Counts
from rlvr_jax.report.tables import Table

BY_PROBLEM_READING = (
    "These intervals cover other seeds and other problems of the same kind, not other "
    "seeds alone: seeds and problems are crossed random effects."
)
MIN_PROBLEMS = 2
_OUTCOMES = {"pass@1": PASS, "pass@1 gained": GAIN}  # with a value for each problem


def count_by_problem(arms: Sequence[ExperimentArm]) -> dict[str, Any]:
    """Returns the problems, and each run's samples and right answers, as JSON.

    `correct` is {arm: {seed: {"before" or "after" RL: right answers by problem}}}, in
    the order of `problems`. The record is {} unless all runs answered the same problems
    with the same number of samples.
    """
    sides = [
        side for arm in arms for run in arm.runs for side in (run.before, run.after)
    ]
    problems = sorted(sides[0])
    samples = {samples for side in sides for samples, _ in side.values()}
    if not problems or len(samples) > 1 or any(sorted(x) != problems for x in sides):
        return {}

    def list_correct(side: Counts) -> list[int]:
        return [side[problem][1] for problem in problems]

    return {
        "problems": problems,
        "samples": samples.pop(),
        "correct": {
            arm.label: {
                str(seed): {
                    "before": list_correct(run.before),
                    "after": list_correct(run.after),
                }
                for seed, run in zip(arm.seeds, arm.runs, strict=True)
            }
            for arm in arms
        },
    }


def explain_no_counts(record: Mapping[str, Any], outcomes: Sequence[str]) -> list[str]:
    """Returns a sentence if the outcomes have values by problem and the record none."""
    if record or not any(outcome in _OUTCOMES for outcome in outcomes):
        return []
    return [
        "no intervals over problems, because the runs did not answer the same problems "
        "as often before and after RL"
    ]


def measure_over_problems(
    experiment: Experiment, record: Mapping[str, Any], outcomes: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns intervals over seeds and problems of what `record` counts, as JSON.

    They are of each arm, of its difference from the baseline, and of the slopes, in
    pass@1 and its gain, where these are outcomes. Two seeds or a single problem have
    none.
    """
    arms = record.get("correct", {})
    if len(record.get("problems", ())) < MIN_PROBLEMS:
        return []
    if len(next(iter(arms.values()))) < MIN_SEEDS:
        return []
    found = []
    for outcome in (name for name in outcomes if name in _OUTCOMES):
        value_SP = {
            arm: _read_values(by_seed, outcome) / record["samples"]
            for arm, by_seed in arms.items()
        }
        base_SP = value_SP[experiment.baseline]
        bounds, tested_SP = BOUNDS[_OUTCOMES[outcome]], dict(value_SP)
        for arm in arms:
            if arm != experiment.baseline:
                label = f"{arm} minus {experiment.baseline}"
                tested_SP[label] = value_SP[arm] - base_SP
        tested_SP |= _fit_slopes(experiment, value_SP)
        found += [
            {
                "outcome": outcome,
                "metric": _OUTCOMES[outcome],
                "name": name,
                "is_change": outcome != "pass@1" or name not in value_SP,
                **_cut(crossed_interval(each_SP), name in value_SP, bounds).to_json(),
            }
            for name, each_SP in tested_SP.items()
        ]
    return found


def _cut(interval: Interval, is_arm: bool, bounds: tuple[float, float]) -> Interval:
    """Returns an arm's interval cut at the metric's bounds; others as they are."""
    if not is_arm:
        return interval
    low, high = np.clip(interval[1:], *bounds)
    return Interval(interval.value, float(low), float(high))


def _read_values(
    by_seed: Mapping[str, Mapping[str, Sequence[int]]], outcome: str
) -> npt.NDArray[np.float64]:
    """Returns right answers [S, P] after RL, or how many more than before."""
    after_SP = np.array([run["after"] for run in by_seed.values()], np.float64)
    if outcome == "pass@1":
        return after_SP
    return after_SP - np.array([run["before"] for run in by_seed.values()])


def _fit_slopes(
    experiment: Experiment, value_SP: Mapping[str, npt.NDArray[np.float64]]
) -> dict[str, npt.NDArray[np.float64]]:
    """Returns the slopes [S, P] that least squares fit, and their differences."""
    fitted: dict[str, npt.NDArray[np.float64]] = {}
    for name, slope in experiment.slopes.items():
        if any(arm not in value_SP for arm in slope.dose_by_arm):
            continue
        weights = weigh_arms(slope.dose_by_arm)
        fitted[f"slope {name}"] = np.sum(
            [weight * value_SP[arm] for arm, weight in weights.items()], axis=0
        )
        if (other := f"slope {slope.minus}") in fitted:
            fitted[f"slope {name} minus {slope.minus}"] = (
                fitted[f"slope {name}"] - fitted[other]
            )
    return fitted


def by_problem_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a row for each of `measure_over_problems`."""
    rows = [
        [
            each["outcome"] + PERCENT,
            each["name"],
            format_value(each, each["metric"], "+" if each["is_change"] else ""),
        ]
        for each in found
    ]
    return Table(head=("", "of", "mean [95 %]"), rows=rows)
