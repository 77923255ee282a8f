"""A comparison as charts: differences, pass@k by arm, and training metrics."""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.analysis.compare.arms import MIN_SEEDS, ExperimentArm
from rlvr_jax.analysis.compare.metric import BAND, BOUNDS, PASS, PASS_BEFORE
from rlvr_jax.analysis.compare.rows import label_metric
from rlvr_jax.metrics.bootstrap import t_interval
from rlvr_jax.report.charts import (
    Forest,
    ForestRow,
    Line,
    Panel,
    arm_colors,
    smooth,
)
from rlvr_jax.report.tables import mean
from rlvr_jax.types import BANDS

_SERIES = {
    "reward/mean": "Mean reward",
    "groups/nonzero_std": "Groups with signal",
    "rollout/length_mean": "Completion length, tokens",
    "eval/pass@1": "Held-out pass@1 while training",
    "confidence/ece": "Calibration error (ECE)",
}
_FRACTIONS = ("groups/nonzero_std", "eval/pass@1", "confidence/ece")
_RARE = 0.05  # of a type's completions


def comparison_panels(
    comparison: Mapping[str, Any], arms: Sequence[ExperimentArm]
) -> list[Panel | Forest]:
    """Returns the charts that the runs have data for; an arm's seeds are faint.

    The differences are in pass@1, or in the metric that the comparison is decided by.
    """
    decides = comparison.get("decided_by")
    first = [
        metric
        for metric in comparison["metrics"]
        if (label_metric(metric) == decides if decides else metric["name"] == PASS)
    ]
    return [
        *(
            forest
            for metric in first[:1]
            for forest in difference_forest(comparison, metric)
        ),
        *pass_panels(comparison),
        *series_panels(arms),
    ]


def difference_forest(
    comparison: Mapping[str, Any], metric: Mapping[str, Any]
) -> list[Forest]:
    """Returns a forest of each arm's difference from the baseline, [] without any.

    Faint dots are the differences of the seeds, if both arms have the same.
    """
    base = comparison["baseline"]
    colors = arm_colors([arm["label"] for arm in comparison["arms"]])
    rows = [
        ForestRow(
            label=arm,
            color=colors[arm],
            value=found["mean"],
            low=_or_nan(found["low"]),
            high=_or_nan(found["high"]),
            points=[*found.get("seeds", {}).values()],
        )
        for arm, found in metric["differences"].items()
        if found is not None
    ]
    title = f"{label_metric(metric)} minus {base}"
    return [Forest(title=title, rows=rows, percent=metric["name"] in BOUNDS)] * bool(
        rows
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def pass_panels(comparison: Mapping[str, Any]) -> list[Panel]:
    """Returns pass@k after RL, before RL, and after RL by band before RL."""
    colors = arm_colors([arm["label"] for arm in comparison["arms"]])
    panels = [
        _pass_panel(comparison, name, title, colors, group=group)
        for name, title, group in (
            (PASS, "pass@k after RL", ""),
            (PASS_BEFORE, "... and before", ""),
            *((PASS, f"pass@k after RL, {band}", band) for band in BANDS[:3]),
        )
    ]
    return [panel for panel in panels if panel.lines]


def series_panels(arms: Sequence[ExperimentArm]) -> list[Panel]:
    """Returns charts of training metrics over the steps, strategies last."""
    panels = [
        _series_panel(arms, name, title, percent=name in _FRACTIONS)
        for name, title in _SERIES.items()
    ]
    for kind, strategy in _best_strategies(arms).items():
        for part, said in (("", "chosen"), ("_pass", "correct if chosen")):
            name = f"strategy_{kind}/{strategy}{part}"
            title = f"{kind}: {strategy} {said}"
            panels.append(_series_panel(arms, name, title, percent=True))
    return [panel for panel in panels if panel.lines]


def _best_strategies(arms: Sequence[ExperimentArm]) -> dict[str, str]:
    """Returns for each type the strategy that was right most often when chosen.

    A strategy counts if more than one in 20 completions chose it. Types with fewer than
    two such strategies are left out.
    """
    rates: dict[str, dict[str, list[float]]] = {}
    for run in (run.run for arm in arms for run in arm.runs):
        for kind in run.match_metrics("train", r"strategy_(.+)/[^/]+_pass"):
            of_kind = rf"strategy_{re.escape(kind)}/([^/]+)_pass"
            for name in run.match_metrics("train", of_kind):
                metric = f"strategy_{kind}/{name}"
                if mean(run.series("train", metric)[1]) > _RARE:
                    _, right = run.series("train", f"{metric}_pass")
                    rates.setdefault(kind, {}).setdefault(name, []).append(mean(right))
    return {
        kind: max(by_name, key=lambda name: mean(by_name[name]))
        for kind, by_name in rates.items()
        if len(by_name) > 1
    }


def _pass_panel(
    comparison: Mapping[str, Any],
    name: str,
    title: str,
    colors: Mapping[str, str],
    *,
    group: str,
) -> Panel:
    """Returns pass@k of a band, or over all; shaded if every k has an interval."""
    metrics = [
        metric
        for metric in comparison["metrics"]
        if metric["name"] == name
        and (metric["grouping"], metric["group"]) == (BAND if group else "all", group)
    ]
    lines: list[Line] = []
    for arm, color in colors.items():
        known = [metric for metric in metrics if metric["values"][arm] is not None]
        values = [metric["values"][arm] for metric in known]
        ks = [metric["k"] for metric in known]
        if not known:
            continue
        has_interval = all(value["low"] is not None for value in values)
        lines.append(
            Line(
                label=arm,
                color=color,
                x=ks,
                y=[value["mean"] for value in values],
                interval=(
                    ([v["low"] for v in values], [v["high"] for v in values])
                    if has_interval
                    else None
                ),
            )
        )
        seeds = known[0]["seeds"][arm]
        if len(seeds) > 1:
            lines += [
                Line(
                    label=arm,
                    color=color,
                    x=ks,
                    y=[metric["seeds"][arm][seed] for metric in known],
                    faint=True,
                )
                for seed in seeds
                if all(seed in metric["seeds"][arm] for metric in known)
            ]
    return Panel(title=title, lines=lines, xlabel="k", percent=True, categorical=True)


def _series_panel(
    arms: Sequence[ExperimentArm], name: str, title: str, *, percent: bool
) -> Panel:
    """Returns a smoothed training metric, for arms in which all seeds have it.

    Several seeds are shown as their mean; three or more have Student's 95 % interval at
    each single step.
    """
    colors = arm_colors([arm.label for arm in arms])
    lines: list[Line] = []
    for arm in arms:
        curves = [
            dict(zip(*run.run.series("train", name), strict=True)) for run in arm.runs
        ]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        if len(steps) < 2:
            continue
        line = functools.partial(
            Line, label=arm.label, color=colors[arm.label], x=steps
        )
        by_seed = [[curve[step] for step in steps] for curve in curves]
        if len(by_seed) < MIN_SEEDS:
            lines.append(
                line(y=[mean(values) for values in zip(*by_seed, strict=True)])
            )
        else:
            smoothed = [smooth(curve) for curve in by_seed]
            at_step = [t_interval(values) for values in zip(*smoothed, strict=True)]
            ends = [each.low for each in at_step], [each.high for each in at_step]
            lines.append(line(y=[each.value for each in at_step], interval=ends))
        if len(by_seed) > 1:
            lines += [line(y=curve, faint=True) for curve in by_seed]
    return Panel(title=title, lines=lines, percent=percent)
