"""A comparison as charts: pass@k by arm, and what the steps of training measured."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.analysis.charts import Line, Panel, arm_colors
from rlvr_jax.analysis.compare.arms import ExperimentArm
from rlvr_jax.analysis.compare.run_metrics import PASS, PASS_BEFORE

_SERIES = {
    "reward/mean": "Mean reward",
    "groups/nonzero_std": "Groups with signal",
    "rollout/length_mean": "Completion length, tokens",
    "eval/pass@1": "Held-out pass@1 while training",
}
_FRACTIONS = ("groups/nonzero_std", "eval/pass@1")


def comparison_panels(
    comparison: Mapping[str, Any], arms: Sequence[ExperimentArm]
) -> list[Panel]:
    """Returns the charts that the runs have data for; seeds of an arm are faint."""
    colors = arm_colors([arm.label for arm in arms])
    panels = [
        _pass_panel(comparison, name, title, colors)
        for name, title in ((PASS, "pass@k after RL"), (PASS_BEFORE, "... and before"))
    ]
    panels += [_series_panel(arms, name, colors) for name in _SERIES]
    return [panel for panel in panels if panel.lines]


def _pass_panel(
    comparison: Mapping[str, Any], name: str, title: str, colors: Mapping[str, str]
) -> Panel:
    """Returns pass@k over all problems; shaded where each k has an interval."""
    metrics = [
        metric
        for metric in comparison["metrics"]
        if metric["name"] == name and metric["grouping"] == "all"
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
    arms: Sequence[ExperimentArm], name: str, colors: Mapping[str, str]
) -> Panel:
    """Returns a metric of training: an arm's mean where all its seeds have it."""
    lines: list[Line] = []
    for arm in arms:
        curves = [
            dict(zip(*run.run.series("train", name), strict=True)) for run in arm.runs
        ]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        if len(steps) < 2:
            continue
        color = colors[arm.label]
        lines.append(
            Line(
                label=arm.label,
                color=color,
                x=steps,
                y=[statistics.fmean(curve[step] for curve in curves) for step in steps],
            )
        )
        if len(curves) > 1:
            lines += [
                Line(
                    label=arm.label,
                    color=color,
                    x=steps,
                    y=[curve[step] for step in steps],
                    faint=True,
                )
                for curve in curves
            ]
    return Panel(title=_SERIES[name], lines=lines, percent=name in _FRACTIONS)
