"""The parts of a section of the report: text, charts, a table, findings."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import markupsafe

from rlvr_jax.report.charts import BLUE, Line, Panel, draw_panel
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.tables import Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One section of the page: its text, then findings, charts and a table.

    `legend` maps labels to colors; a finding is (heading, finding, advice). A `folded`
    section shows its title until the reader opens it.
    """

    title: str
    text: str = ""
    figures: Sequence[markupsafe.Markup] = ()
    legend: Mapping[str, str] = dataclasses.field(default_factory=dict)
    table: Table | None = None
    findings: Sequence[tuple[str, str, str]] = ()
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the page: a function that makes its sections from a run's files.

    It returns None or nothing if the run has no data for it. Parts are sorted by
    `order`; a part that `is_first` is shown without a click.
    """

    make: Callable[[RunArtifacts], Section | Sequence[Section] | None]
    _: dataclasses.KW_ONLY
    order: int
    is_first: bool = False

    def sections(self, run: RunArtifacts) -> list[Section]:
        """Returns the part's sections, folded unless it comes first."""
        made = self.make(run)
        made = [made] if isinstance(made, Section) else list(made or ())
        return [
            dataclasses.replace(section, folded=not self.is_first) for section in made
        ]


def metric_line(
    run: RunArtifacts,
    name: str,
    *,
    label: str = "",
    color: str = BLUE,
    stage: str = "train",
) -> Line:
    """Returns a metric over a stage's steps as a line; it may have no points.

    A line without a label is the only one in its chart, so it also shows raw values.
    """
    steps, values = run.series(stage, name)
    return Line(label=label, color=color, x=steps, y=values, show_raw=not label)


def draw_chart(
    name: str, title: str, lines: Sequence[Line], **style: Any
) -> list[markupsafe.Markup]:
    """Returns one chart of the lines with at least two points, [] without any."""
    drawn = [line for line in lines if len(line.x) >= 2]
    return [draw_panel(name, Panel(title=title, lines=drawn, **style))] if drawn else []


def make_legend(lines: Sequence[Line]) -> dict[str, str]:
    """Returns the color of each label."""
    return {line.label: line.color for line in lines}
