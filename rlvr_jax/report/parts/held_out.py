"""Sections of the report on held-out evaluations, before and after RL.

Each function returns its section, or None if the run has no data for it.
"""

import math
from collections.abc import Mapping
from typing import Any

import markupsafe

from rlvr_jax.report.charts import AMBER, BLUE, GRAY, PURPLE, Line
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import (
    Part,
    Section,
    draw_chart,
    make_legend,
    metric_line,
)
from rlvr_jax.report.tables import (
    Table,
    describe_crossing,
    format_with_interval,
)

_EVAL_COLORS = {"before": GRAY, "after": BLUE}
_STRATEGY_COLORS = {"forward": BLUE, "backward": AMBER, "mixed": PURPLE, "none": GRAY}
_K_AXIS = {"xlabel": "k", "percent": True, "categorical": True}
_LEVEL_AXIS: dict[str, Any] = {"xlabel": "level", "percent": True, "categorical": True}

# {k or level: {"mean", "low", "high"}}
_Points = Mapping[str, Mapping[str, float | None]]


def evaluations(run: RunArtifacts) -> dict[str, dict[str, Any]]:
    """Returns the existing scores of held-out evaluations, before and after RL."""
    evals = run.summary.get("eval", {})
    return {when: evals[when] for when in _EVAL_COLORS if when in evals}


def smallest_k(scores: Mapping[str, Any]) -> str:
    """Returns the smallest k of the pass@k curve, usually 1."""
    return min(scores["pass@k"], key=int)


def pass_curves(run: RunArtifacts) -> Section | None:
    """pass@k and maj@k before and after, with intervals."""
    evals = evaluations(run)
    if not evals:
        return None
    passed, majority = (
        [eval_line(when, scores[kind]) for when, scores in evals.items()]
        for kind in ("pass@k", "maj@k")
    )
    return Section(
        title="Pass@k on held-out problems",
        text="pass@k: at least one of k samples is correct. maj@k: the most frequent "
        f"answer among k samples is correct.{_crossing_text(run)}",
        figures=[
            *draw_chart("pass-at-k", "pass@k", passed, **_K_AXIS),
            *draw_chart("maj-at-k", "maj@k", majority, **_K_AXIS),
        ],
        legend=make_legend(passed),
    )


def _crossing_text(run: RunArtifacts) -> str:
    """Returns a sentence on where pass@k before and after RL cross, "" if unknown."""
    if (gain := run.summary.get("eval", {}).get("gain")) is None:
        return ""
    found = describe_crossing("RL", "the policy before it", gain["crossing"])
    return f" pass@k: {found}."


def accuracy(run: RunArtifacts) -> Section | None:
    """pass@1 by level and by type, before and after."""
    evals = evaluations(run)
    if not evals:
        return None
    level_axis = _LEVEL_AXIS | {"tick_names": run.level_names}
    lines = [eval_line(when, _pass_by_level(scores)) for when, scores in evals.items()]
    charts = draw_chart("by-level", "All types", lines, **level_axis)
    types = sorted({kind for scores in evals.values() for kind in scores["by_type"]})
    for index, kind in enumerate(types if len(types) > 1 else ()):
        of_kind = [
            eval_line(when, _pass_by_level(scores, kind))
            for when, scores in evals.items()
        ]
        charts += draw_chart(f"by-level-{index}", kind, of_kind, **level_axis)
    rows = [
        (kind or "all", *(_format_type(scores, kind) for scores in evals.values()))
        for kind in types
    ]
    k = smallest_k(next(iter(evals.values())))
    return Section(
        title="Accuracy by level and type of problem",
        text=f"pass@{k} on held-out problems.",
        figures=charts,
        legend=make_legend(lines) if charts else {},
        table=Table(head=("type", *evals), rows=rows),
    )


def strategies(run: RunArtifacts) -> Section | None:
    """How often each strategy is chosen for each type of problem, and is right."""
    types = run.match_metrics("train", r"strategy_(.+)/forward")
    evals = evaluations(run)
    used = {
        (kind, name)
        for scores in evals.values()
        for kind, names in scores["strategies"].items()
        for name in names
    }
    if not types and not used:
        return None
    charts: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for index, kind in enumerate(types):
        lines = [
            metric_line(run, f"strategy_{kind}/{name}", label=name, color=color)
            for name, color in _STRATEGY_COLORS.items()
        ]
        lines = [line for line in lines if sum(line.y) > 0]
        charts += draw_chart(f"strategy{index}", kind, lines, percent=True)
        labels |= make_legend(lines)
    columns = [(part, when) for part in ("share", "pass") for when in evals]
    rows = [
        (
            kind,
            name,
            *(_format_strategy(evals[w], kind, name)[part] for part, w in columns),
        )
        for kind, name in sorted(used)
    ]
    names = {"share": "chosen", "pass": "correct if chosen"}
    head = ("type", "strategy", *(f"{names[part]}, {when}" for part, when in columns))
    return Section(
        title="Which strategies the policy chooses, and how often they work",
        text="The charts show how often each strategy was chosen over training; the "
        "table gives P(strategy | type) and P(correct | strategy, type) on held-out "
        "problems.",
        figures=charts,
        legend=labels,
        table=Table(head=head, rows=rows) if rows else None,
    )


def eval_line(when: str, points: _Points) -> Line:
    """Returns the curve of an evaluation, `when` before or after, with intervals."""
    return Line(
        label=when,
        color=_EVAL_COLORS[when],
        x=[int(x) for x in points],
        y=_floats(points, "mean"),
        interval=(_floats(points, "low"), _floats(points, "high")),
    )


def _floats(points: _Points, name: str) -> list[float]:
    """Returns one number of each point; null becomes NaN, which is not drawn."""
    values = (point[name] for point in points.values())
    return [math.nan if value is None else value for value in values]


def _pass_by_level(
    scores: Mapping[str, Any], problem_type: str | None = None
) -> _Points:
    """Returns pass@1 of each level, or of each level's problems of one type."""
    groups = scores["by_level"]
    if problem_type is not None:
        levels = scores["by_level_type"].items()
        groups = {
            n: by_type[problem_type] for n, by_type in levels if problem_type in by_type
        }
    return {n: group["pass@k"][smallest_k(group)] for n, group in groups.items()}


def _format_type(scores: Mapping[str, Any], problem_type: str) -> str:
    group = scores["by_type"][problem_type]
    return format_with_interval(group["pass@k"][smallest_k(group)])


def _format_strategy(
    scores: Mapping[str, Any], problem_type: str, name: str
) -> dict[str, str]:
    """Returns share and pass rate as text; dashes if the strategy was never chosen."""
    found = scores["strategies"].get(problem_type, {}).get(name)
    return {
        part: format_with_interval(found[part]) if found else "\u2013"
        for part in ("share", "pass")
    }


PARTS = (
    Part(strategies, order=30, is_first=True),
    Part(accuracy, order=40, is_first=True),
    Part(pass_curves, order=120),
)
