"""The parts of a report that come from held-out evaluation, before and after.

Each function returns its section, or None where the run has no data for it.
"""

from collections.abc import Mapping
from typing import Any

import markupsafe

from rlvr_jax.analysis.figures import AMBER, BLUE, GREY, PURPLE, Line
from rlvr_jax.analysis.section import (
    Section,
    Table,
    chart,
    curve,
    legend,
    with_interval,
)
from rlvr_jax.analysis.workdir import Run

_WHEN = {"before": GREY, "after": BLUE}
_STRATEGIES = {"forward": BLUE, "backward": AMBER, "mixed": PURPLE, "none": GREY}
_BY_K = {"xlabel": "k", "percent": True, "marks": True}
_BY_LEVEL = {"xlabel": "level", "percent": True, "marks": True}

# {k or level: {"mean", "low", "high"}}
_Points = Mapping[str, Mapping[str, float]]


def evaluations(run: Run) -> dict[str, dict[str, Any]]:
    """Returns the held-out evaluations there are: before, after, or both."""
    found = run.summary.get("eval", {})
    return {when: found[when] for when in _WHEN if when in found}


def smallest_k(scores: Mapping[str, Any]) -> str:
    """Returns the k of the first point of the pass@k curve, 1 as a rule."""
    return min(scores["pass@k"], key=int)


def pass_curves(run: Run) -> Section | None:
    """pass@k and maj@k before and after, with intervals."""
    evals = evaluations(run)
    if not evals:
        return None
    passed, majority = (
        [when_line(when, scores[kind]) for when, scores in evals.items()]
        for kind in ("pass@k", "maj@k")
    )
    return Section(
        title="Pass@k on held-out problems",
        text="pass@k: at least one of k samples is right (unbiased estimate). maj@k: "
        "the most frequent answer among k is. Bands are 95 % bootstrap intervals over "
        "problems.",
        figures=[
            *chart("pass-at-k", "pass@k", passed, **_BY_K),
            *chart("maj-at-k", "maj@k", majority, **_BY_K),
        ],
        legend=legend(passed),
    )


def accuracy(run: Run) -> Section | None:
    """pass@1 by level and by type, before and after."""
    evals = evaluations(run)
    if not evals:
        return None
    lines = [when_line(when, _by_level(scores)) for when, scores in evals.items()]
    charts = chart("by-level", "All types", lines, **_BY_LEVEL)
    types = sorted({kind for scores in evals.values() for kind in scores["by_type"]})
    for index, kind in enumerate(types if len(types) > 1 else ()):
        of_kind = [
            when_line(when, _by_level(scores, kind)) for when, scores in evals.items()
        ]
        charts += chart(f"by-level-{index}", kind, of_kind, **_BY_LEVEL)
    rows = [
        (kind or "all", *(_of_type(scores, kind) for scores in evals.values()))
        for kind in types
    ]
    k = smallest_k(next(iter(evals.values())))
    return Section(
        title="Accuracy by level and type",
        text=f"pass@{k} on held-out problems, with 95 % intervals.",
        figures=charts,
        legend=legend(lines) if charts else {},
        table=Table(head=("type", *evals), rows=rows),
    )


def strategies(run: Run) -> Section | None:
    """How problems of each type are attacked, and how well that works."""
    types = run.found("train", r"strategy_(.+)/forward")
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
            curve(run, f"strategy_{kind}/{name}", label=name, color=color)
            for name, color in _STRATEGIES.items()
        ]
        lines = [line for line in lines if sum(line.y) > 0]
        charts += chart(f"strategy{index}", kind, lines, percent=True)
        labels |= legend(lines)
    columns = [(part, when) for part in ("share", "pass") for when in evals]
    rows = [
        (kind, name, *(_of_strategy(evals[w], kind, name)[part] for part, w in columns))
        for kind, name in sorted(used)
    ]
    words = {"share": "chosen", "pass": "right if chosen"}
    head = ("type", "strategy", *(f"{words[part]}, {when}" for part, when in columns))
    return Section(
        title="Strategies",
        text="The charts show how often each strategy was chosen over training; the "
        "table gives P(strategy | type) and P(right | strategy, type) on held-out "
        "problems.",
        figures=charts,
        legend=labels,
        table=Table(head=head, rows=rows) if rows else None,
    )


def when_line(when: str, points: _Points) -> Line:
    """Returns the curve of an evaluation, `when` before or after, with intervals."""
    return Line(
        label=when,
        color=_WHEN[when],
        x=[int(x) for x in points],
        y=[value["mean"] for value in points.values()],
        band=(
            [value["low"] for value in points.values()],
            [value["high"] for value in points.values()],
        ),
    )


def _by_level(scores: Mapping[str, Any], kind: str | None = None) -> _Points:
    """Returns pass@1 of each level, or of each level's problems of one type."""
    groups = scores["by_level"]
    if kind is not None:
        levels = scores["by_level_type"].items()
        groups = {n: by_type[kind] for n, by_type in levels if kind in by_type}
    return {n: group["pass@k"][smallest_k(group)] for n, group in groups.items()}


def _of_type(scores: Mapping[str, Any], kind: str) -> str:
    group = scores["by_type"][kind]
    return with_interval(group["pass@k"][smallest_k(group)])


def _of_strategy(scores: Mapping[str, Any], kind: str, name: str) -> dict[str, str]:
    """Returns share and pass rate in words; a strategy never chosen has neither."""
    found = scores["strategies"].get(kind, {}).get(name)
    return {
        part: with_interval(found[part]) if found else "\u2013"
        for part in ("share", "pass")
    }
