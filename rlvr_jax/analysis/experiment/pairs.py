"""Two outcomes of the same runs against each other, a point for each arm and seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.resampling import Interval
from rlvr_jax.analysis.compare.arms import MIN_SEEDS
from rlvr_jax.analysis.compare.metric import BOUNDS
from rlvr_jax.analysis.compare.rows import PERCENT, label_metric
from rlvr_jax.config.experiment import Experiment
from rlvr_jax.metrics.ranks import OverSeeds, rank_correlations
from rlvr_jax.report.charts import Line, Panel, arm_colors
from rlvr_jax.report.tables import Table

_MIN_ARMS = 3  # of a seed, for a rank correlation
PAIRS_READING = (
    "A dot is a run. The rank correlation (Spearman's) is over the arms of one seed; "
    "its mean over seeds has Student's interval, cut at -1 and 1. Arms differ in more "
    "than the first outcome, so a correlation over arms is not a cause."
)


def measure_pairs(
    experiment: Experiment, metrics: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Returns the rank correlation of each pair of outcomes as JSON, seed by seed.

    `metrics` are a comparison's. A pair is left out if no seed has three arms with both
    outcomes. A seed on which all arms are equal in one of them has none.
    """
    labels = {label_metric(metric): metric for metric in metrics}
    found = []
    for first, second in experiment.pairs:
        if not (first in labels and second in labels):
            continue
        by_seed = {}
        for seed, points in _points_by_seed(labels[first], labels[second]).items():
            if len(points) < _MIN_ARMS:
                continue
            correlation = float(rank_correlations(*zip(*points.values(), strict=True)))
            if not math.isnan(correlation):
                by_seed[seed] = correlation
        if by_seed:
            numbered = {int(seed): value for seed, value in by_seed.items()}
            interval = OverSeeds.average(numbered).interval
            if len(by_seed) < MIN_SEEDS:
                interval = Interval(interval.value, math.nan, math.nan)
            found.append(
                {
                    "outcomes": [first, second],
                    **interval.to_json(),
                    "seeds": by_seed,
                }
            )
    return found


def pair_panels(
    experiment: Experiment, metrics: Sequence[Mapping[str, Any]]
) -> list[Panel]:
    """Returns a chart of each pair of outcomes; a color is an arm, a dot is a run."""
    labels = {label_metric(metric): metric for metric in metrics}
    panels = []
    for first, second in experiment.pairs:
        if not (first in labels and second in labels):
            continue
        x_metric, y_metric = labels[first], labels[second]
        by_seed = _points_by_seed(x_metric, y_metric)
        arms = [arm for arm in x_metric["seeds"] if arm in y_metric["seeds"]]
        colors = arm_colors(arms)
        lines = []
        for arm in arms:
            points = [points[arm] for points in by_seed.values() if arm in points]
            if points:
                x, y = np.array(points).T * [[_scale(x_metric)], [_scale(y_metric)]]
                lines.append(
                    Line(label=arm, color=colors[arm], x=x, y=y, dots_only=True)
                )
        if lines:
            panels.append(
                Panel(
                    title=_name_with_unit(y_metric),
                    lines=lines,
                    xlabel=_name_with_unit(x_metric),
                )
            )
    return panels


def pair_table(pairs: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a row for each pair of outcomes."""
    rows = []
    for pair in pairs:
        text = f"{pair['mean']:+.2f}"
        if pair["low"] is not None:
            text += f" [{pair['low']:+.2f}, {pair['high']:+.2f}]"
        by_seed = " ".join(f"{value:+.2f}" for value in pair["seeds"].values())
        rows.append([*pair["outcomes"], text, by_seed])
    return Table(
        head=("outcome", "and", "rank correlation [95 %]", "by seed"), rows=rows
    )


def _points_by_seed(
    x_metric: Mapping[str, Any], y_metric: Mapping[str, Any]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Returns both values by seed and arm, where a run has both."""
    points: dict[str, dict[str, tuple[float, float]]] = {}
    for arm, x_by_seed in x_metric["seeds"].items():
        y_by_seed = y_metric["seeds"].get(arm, {})
        for seed, x in x_by_seed.items():
            if seed in y_by_seed:
                points.setdefault(seed, {})[arm] = (x, y_by_seed[seed])
    return points


def _scale(metric: Mapping[str, Any]) -> float:
    return 100.0 if metric["name"] in BOUNDS else 1.0


def _name_with_unit(metric: Mapping[str, Any]) -> str:
    return label_metric(metric) + PERCENT * (metric["name"] in BOUNDS)
