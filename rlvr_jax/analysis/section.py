"""What a part of the report is made of, and how it words numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from rlvr_jax.analysis.figures import BLUE, Line, Panel, draw
from rlvr_jax.analysis.workdir import Run

# A number and its unit stay on one line.
_SPACE = "\u00a0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the page: what to read from it, then charts, table, findings.

    `legend` maps labels to colours; a finding is (heading, what is seen, what to do).
    """

    title: str
    text: str = ""
    figures: Sequence[markupsafe.Markup] = ()
    legend: Mapping[str, str] = dataclasses.field(default_factory=dict)
    table: Table | None = None
    findings: Sequence[tuple[str, str, str]] = ()


def percent(share: float) -> str:
    """Returns a share as "63 %"."""
    return f"{100 * share:.0f}{_SPACE}%"


def interval(value: Mapping[str, float]) -> str:
    """Returns the interval's ends as "59-67 %", with an en dash."""
    return f"{100 * value['low']:.0f}\u2013{100 * value['high']:.0f}{_SPACE}%"


def with_interval(value: Mapping[str, float]) -> str:
    """Returns "63 % (59-67 %)"."""
    return f"{percent(value['mean'])} ({interval(value)})"


def mean(values: Sequence[float]) -> float:
    """Returns the mean of at least one value."""
    return sum(values) / len(values)


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Returns the means of the first and of the last tenth."""
    tenth = max(1, len(values) // 10)
    return mean(values[:tenth]), mean(values[-tenth:])


def curve(
    run: Run, name: str, *, label: str = "", color: str = BLUE, stage: str = "train"
) -> Line:
    """Returns a metric over a stage's steps; it may have no points.

    A curve without a label stands alone in its chart, and shows its raw values too.
    """
    steps, values = run.series(stage, name)
    return Line(label=label, color=color, x=steps, y=values, raw=not label)


def chart(
    name: str, title: str, lines: Sequence[Line], **style: Any
) -> list[markupsafe.Markup]:
    """Returns the chart of those lines that have two points; no chart of none."""
    drawn = [line for line in lines if len(line.x) >= 2]
    return [draw(name, Panel(title=title, lines=drawn, **style))] if drawn else []


def legend(lines: Sequence[Line]) -> dict[str, str]:
    """Returns the colour of each label."""
    return {line.label: line.color for line in lines}
