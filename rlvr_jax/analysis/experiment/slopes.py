"""Slopes of an experiment: how an outcome changes with a dose that arms have."""

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.resampling import Interval
from rlvr_jax.analysis.compare.arms import MIN_SEEDS
from rlvr_jax.analysis.compare.metric import BEFORE_RL, BOUNDS
from rlvr_jax.analysis.compare.rows import PERCENT, label_metric
from rlvr_jax.analysis.compare.text import format_number, format_value
from rlvr_jax.config.experiment import Experiment
from rlvr_jax.metrics.bootstrap import is_constant, t_interval
from rlvr_jax.metrics.multiple import holm, paired_p_value
from rlvr_jax.metrics.power import detectable_difference
from rlvr_jax.report.charts import Line, Panel, arm_colors
from rlvr_jax.report.tables import Table

_ROUNDING = 1e-12  # slopes that differ by less are equal
SLOPES_READING = (
    "A slope is the change of an outcome from dose 0 to dose 1, on the line that is "
    "fitted to the arms of a seed by least squares; its interval is Student's over "
    "seeds. p is of Student's t-test over seeds; Holm is p corrected for the number of "
    "differences between slopes in this outcome."
)


def measure_slopes(
    experiment: Experiment,
    metrics: Sequence[Mapping[str, Any]],
    outcomes: Sequence[str],
) -> list[dict[str, Any]]:
    """Returns each slope of each outcome as JSON, and differences between slopes.

    `metrics` are a comparison's. A slope needs all of its arms: it is left out if one
    has no runs, and so is a seed on which one has no value. What was measured before RL
    has none.
    """
    found: list[dict[str, Any]] = []
    labels = {label_metric(metric): metric for metric in metrics}
    for metric in [labels[outcome] for outcome in outcomes if outcome in labels]:
        if metric["name"].endswith(BEFORE_RL):
            continue
        by_slope: dict[str, dict[str, float]] = {}
        differences = []
        for name, slope in experiment.slopes.items():
            by_seed = fit_by_seed(slope.dose_by_arm, metric["seeds"])
            if not by_seed:
                continue
            by_slope[name] = by_seed
            found.append(_describe(metric, name, by_seed))
            if other := by_slope.get(slope.minus):
                shared = {s: by_seed[s] - other[s] for s in by_seed if s in other}
                if shared:
                    label = f"{name} minus {slope.minus}"
                    differences.append(_describe(metric, label, shared))
                    found.append(differences[-1])
        tested = [one for one in differences if one["p"] is not None]
        corrected = holm([one["p"] for one in tested]).tolist()
        for one, p_value in zip(tested, corrected, strict=True):
            one["holm"] = p_value
    return found


def fit_by_seed(
    dose_by_arm: Mapping[str, float], values: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Returns the slope of each seed that has the value of every arm.

    `values` are an outcome's, by arm and seed.
    """
    if any(arm not in values for arm in dose_by_arm):
        return {}
    weights = weigh_arms(dose_by_arm)
    first, *others = (values[arm] for arm in dose_by_arm)
    seeds = [seed for seed in first if all(seed in other for other in others)]
    return {
        seed: float(sum(weights[arm] * values[arm][seed] for arm in weights))
        for seed in seeds
    }


def weigh_arms(dose_by_arm: Mapping[str, float]) -> dict[str, float]:
    """Returns the weights with which the arms' values add up to their slope.

    By least squares an arm of dose d weighs (d - d_bar) / sum (d - d_bar)^2, with d_bar
    the mean dose.

    >>> weigh_arms({"none": 0.0, "all": 1.0})
    {'none': -1.0, 'all': 1.0}
    """
    dose_A = np.array([*dose_by_arm.values()])
    centred_A = dose_A - dose_A.mean()
    weight_A = centred_A / (centred_A @ centred_A)
    return dict(zip(dose_by_arm, weight_A.tolist(), strict=True))


def dose_panels(
    experiment: Experiment,
    metrics: Sequence[Mapping[str, Any]],
    outcomes: Sequence[str],
) -> list[Panel]:
    """Returns a chart of each outcome over the dose: arms of a slope are one line.

    Faint lines are seeds. An arm that does not vary has an interval of width 0; if
    another has none, the line has no intervals. An outcome without the arms of any
    slope has no chart, and none before RL has one.
    """
    labels = {label_metric(metric): metric for metric in metrics}
    colors = arm_colors([*experiment.slopes])
    panels = []
    for outcome in (name for name in outcomes if name in labels):
        metric, lines = labels[outcome], list[Line]()
        if metric["name"].endswith(BEFORE_RL):
            continue
        scale = 100 if metric["name"] in BOUNDS else 1
        for name, slope in experiment.slopes.items():
            arms = sorted(slope.dose_by_arm, key=slope.dose_by_arm.__getitem__)
            values = [metric["values"].get(arm) for arm in arms]
            if None in values:
                continue
            dose_A = [slope.dose_by_arm[arm] for arm in arms]
            line = functools.partial(Line, label=name, color=colors[name], x=dose_A)
            mean, low, high = (
                [scale * (v["mean"] if v[end] is None else v[end]) for v in values]
                for end in ("mean", "low", "high")
            )
            is_known = all(
                v["low"] is not None
                or (len(by_seed) >= MIN_SEEDS and is_constant([*by_seed.values()]))
                for v, by_seed in zip(
                    values, map(metric["seeds"].__getitem__, arms), strict=True
                )
            )
            lines.append(line(y=mean, interval=(low, high) if is_known else None))
            lines += [
                line(y=[scale * metric["seeds"][arm][seed] for arm in arms], faint=True)
                for seed in fit_by_seed(slope.dose_by_arm, metric["seeds"])
            ]
        if lines:
            title = outcome + PERCENT * (scale == 100)
            panels.append(Panel(title=title, lines=lines, xlabel="dose"))
    return panels


def _describe(
    metric: Mapping[str, object], name: str, by_seed: Mapping[str, float]
) -> dict[str, Any]:
    """Returns a slope as JSON: its mean over seeds, with an interval from three on."""
    values = [*by_seed.values()]
    interval = Interval(statistics.fmean(values), np.nan, np.nan)
    spread = detectable = p_value = None
    if len(values) >= MIN_SEEDS and np.ptp(values) > _ROUNDING:
        interval = t_interval(values)
        spread = statistics.stdev(values)
        detectable = detectable_difference(spread, len(values))
        p_value = paired_p_value(values)
    return {
        "outcome": label_metric(metric),
        "metric": metric["name"],
        "slope": name,
        **interval.to_json(),
        "sd": spread,
        "detectable": detectable,
        "p": p_value,
        "holm": None,
        "seeds": {**by_seed},
    }


def slope_table(slopes: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a row for each slope; fractions are in points per unit of dose."""
    rows = []
    for slope in slopes:
        name = slope["metric"]
        power = [
            "" if slope[key] is None else format_number(slope[key], name)
            for key in ("sd", "detectable")
        ]
        rows.append(
            [
                slope["outcome"] + PERCENT * (name in BOUNDS),
                slope["slope"],
                format_value(slope, name, "+"),
                *power,
                *(
                    "" if slope[key] is None else f"{slope[key]:.3f}"
                    for key in ("p", "holm")
                ),
                " ".join(format_number(s, name, "+") for s in slope["seeds"].values()),
            ]
        )
    head = ("", "slope", "per dose [95 %]", "sd", "found", "p", "Holm", "by seed")
    return Table(head=head, rows=rows)
