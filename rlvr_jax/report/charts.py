"""Small charts as inline SVG, which follow the page's light or dark colors.

A panel always gives the same text, without dates or random ids.
"""

import dataclasses
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe
import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

BLUE, AMBER, PURPLE, GREEN, RED, GRAY = (
    "#3b82c4",
    "#d98324",
    "#8e5bb5",
    "#2f9e6e",
    "#d1495b",
    "#8a8f98",
)
_MORE_COLORS = ("#1f3f77", "#8a5a2b", "#d977b5", "#9aa027", "#26a6b5", "#3a3f47")
# Easy to hard, cool to warm.
_RAMP = (BLUE, PURPLE, RED, AMBER)
_LABELS_PER_LINE = 7  # of a sheet's legend
_MAX_POINTS = 1_000  # of a curve, in a chart some 400 pixels wide
# Placeholders that are replaced by the page's colors.
_INK, _RULE = "#000001", "#000002"

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _RULE,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _RULE,
    "ytick.color": _RULE,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}
# The same for a figure without a page: dark text and light rules, on white.
_STANDALONE_STYLE: dict[Any, Any] = {
    name: {_INK: "#1f2328", _RULE: "#b8bec6"}.get(value, value)
    for name, value in _STYLE.items()
} | {"figure.facecolor": "white"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One curve, optionally with an `interval` (low, high) around it.

    A curve with an interval is not smoothed. `show_raw` adds the unsmoothed values. A
    `faint` line is one of several whose mean is another line. With `dots_only`, no
    curve joins the points.
    """

    label: str
    color: str
    x: Sequence[float]
    y: Sequence[float]
    interval: tuple[Sequence[float], Sequence[float]] | None = None
    show_raw: bool = False
    faint: bool = False
    dots_only: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart of smoothed curves over steps.

    With `categorical`, x values are categories: equally spaced, each with a dot and a
    tick, and not smoothed. `tick_names` are the texts of ticks that are not numbers.
    """

    title: str
    lines: Sequence[Line]
    xlabel: str = "step"
    percent: bool = False
    categorical: bool = False
    tick_names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    stacked: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForestRow:
    """A mean with its interval (NaN ends: none), and the numbers that it averages."""

    label: str
    color: str
    value: float
    low: float
    high: float
    points: Sequence[float] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forest:
    """A forest plot: numbers below each other, with a vertical line at 0."""

    title: str
    rows: Sequence[ForestRow]
    percent: bool = False


class NotebookFigure(Figure):
    """A matplotlib figure that a notebook shows, with or without pyplot."""

    def _repr_svg_(self) -> str:
        text = io.StringIO()
        self.savefig(text, format="svg")
        return text.getvalue()


def level_colors(levels: Sequence[int]) -> dict[int, str]:
    """Returns a color per level, from cool (the lowest) to warm (the highest)."""
    stops = np.array([mpl.colors.to_rgb(color) for color in _RAMP])
    places = np.linspace(0, len(stops) - 1, len(levels)) if len(levels) > 1 else [0.0]
    channels = [np.interp(places, range(len(stops)), stops[:, i]) for i in range(3)]
    return {
        level: mpl.colors.to_hex(rgb)
        for level, rgb in zip(levels, np.stack(channels, axis=1), strict=True)
    }


def smooth(values: Sequence[float]) -> np.ndarray:
    """Returns the centered moving mean over about a twelfth of the values.

    NaN values are skipped; a window with only NaN gives NaN.
    """
    half, at = len(values) // 24, np.arange(len(values))
    first = np.maximum(at - half, 0)
    end = np.minimum(at + half + 1, len(values))
    known = ~np.isnan(np.asarray(values, float))
    total, count = (
        np.concatenate([[0.0], np.nancumsum(each)]) for each in (values, known)
    )
    found = count[end] - count[first]
    mean = (total[end] - total[first]) / np.maximum(found, 1)
    return np.where(found > 0, mean, np.nan)


def arm_colors(labels: Sequence[str]) -> dict[str, str]:
    """Returns a color for each label; more than 12 labels get colors from a ramp."""
    colors: Sequence[str] = (BLUE, AMBER, PURPLE, GREEN, RED, GRAY, *_MORE_COLORS)
    if len(labels) > len(colors):
        colors = [*level_colors(range(len(labels))).values()]
    return dict(zip(labels, colors, strict=False))


def draw_panel(name: str, panel: Panel | Forest) -> markupsafe.Markup:
    """Returns the panel as an `<svg>` element whose ids all start with `name`."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(4.3, 2.5))
        _draw_axes(figure.add_axes((0.14, 0.19, 0.84, 0.68)), panel)
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _to_inline_svg(text.getvalue(), name, panel.title)


def draw_figure(panel: Panel | Forest) -> NotebookFigure:
    """Returns the panel as a figure for notebooks, with the colors of a white page."""
    with mpl.rc_context(_STANDALONE_STYLE):
        figure = NotebookFigure(figsize=(6.4, 3.6), layout="constrained")
        _draw_axes(figure.add_subplot(), panel)
    return figure


def _draw_axes(axes: Axes, panel: Panel | Forest) -> None:
    axes.set_title(panel.title)
    axes.tick_params(length=0)
    if isinstance(panel, Forest):
        _draw_forest(axes, panel)
    else:
        _draw_curves(axes, panel)


def _draw_forest(axes: Axes, forest: Forest) -> None:
    """Draws the rows from the top, each label above its row on the longer side of 0."""
    rows = [*reversed(forest.rows)]
    for place, row in enumerate(rows):
        axes.plot(
            row.points, [place] * len(row.points), "o", color=row.color, alpha=0.3, ms=4
        )
        axes.plot([row.low, row.high], [place, place], color=row.color, lw=1.8)
        axes.plot(row.value, place, "D", color=row.color, ms=5)
    axes.axvline(0, color=mpl.rcParams["text.color"], lw=0.8)
    low, high = axes.get_xlim()
    side, gap = ("left", 4) if high > -low else ("right", -4)
    for place, row in enumerate(rows):
        axes.annotate(
            row.label,
            (0, place + 0.22),
            xytext=(gap, 0),
            textcoords="offset points",
            ha=side,
            fontsize=8,
        )
    axes.set_ylim(-0.5, len(rows) - 0.3)
    axes.set_yticks(())
    axes.grid(axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    if forest.percent:
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g}")
        axes.set_xlabel("points")


def _draw_curves(axes: Axes, panel: Panel) -> None:
    if panel.stacked:
        _draw_stack(axes, panel)
    else:
        _draw_lines(axes, panel)
    if axes.dataLim.ymin >= 0:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(panel.xlabel)
    axes.margins(x=0.03 if panel.categorical else 0.01)
    are_steps = not any(line.dots_only for line in panel.lines)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=are_steps))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    if panel.categorical:
        choices = _categories(panel)
        names = [panel.tick_names.get(int(x), f"{x:g}") for x in choices]
        axes.set_xticks(range(len(choices)), names)
    if panel.percent:
        axes.set_ylim(0, 1.02)
        axes.set_yticks((0, 0.25, 0.5, 0.75, 1))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))


def draw_sheet(name: str, title: str, panels: Sequence[Panel | Forest]) -> str:
    """Returns panels as one SVG document, three in a row, under a title and a legend.

    It is for separate files, so it sets the colors that a page would set.
    """
    width, height, line = 430, 250, 20
    colors = _legend(panels)
    top = 32 + line * _legend_lines(colors)
    rows = -(-len(panels) // 3)
    size = f"{3 * width} {top + rows * height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
        'font-family="sans-serif" style="color: #1f2328; --rule: #b8bec6">',
        f'<rect width="{3 * width}" height="{top + rows * height}" fill="#ffffff"/>',
        f'<text x="16" y="22" font-size="15">{markupsafe.escape(title)}</text>',
    ]
    for place, (label, color) in enumerate(colors.items()):
        x, y = (
            16 + 180 * (place % _LABELS_PER_LINE),
            34 + line * (place // _LABELS_PER_LINE),
        )
        text = markupsafe.escape(label)
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}" font-size="12">{text}</text>')
    for place, panel in enumerate(panels):
        x, y = place % 3 * width, top + place // 3 * height
        where = f'<svg x="{x}" y="{y}" width="{width}" height="{height}" '
        svg = str(draw_panel(f"{name}{place}", panel))
        parts.append(svg.replace("<svg ", where, 1))
    return "\n".join([*parts, "</svg>\n"])


def draw_sheet_png(title: str, panels: Sequence[Panel | Forest]) -> bytes:
    """Returns the sheet of `draw_sheet` as a PNG file, with 200 pixels per inch."""
    width, height, line = 4.3, 2.5, 0.2  # inches
    legend = _legend(panels)
    top = 0.4 + line * _legend_lines(legend)
    rows = -(-len(panels) // 3)
    total = top + rows * height
    with mpl.rc_context(_STANDALONE_STYLE):
        figure = Figure(figsize=(3 * width, total), dpi=200)
        figure.text(0.012, 1 - 0.25 / total, title, fontsize=12)
        for place, (label, color) in enumerate(legend.items()):
            x = 0.012 + 0.14 * (place % _LABELS_PER_LINE)
            y = 1 - (0.5 + line * (place // _LABELS_PER_LINE)) / total
            figure.text(x, y, "\u25a0", color=color)
            figure.text(x + 0.012, y, label, fontsize=9)
        for place, panel in enumerate(panels):
            left = (place % 3 + 0.14) / 3
            bottom = 1 - (top + (place // 3 + 0.81) * height) / total
            box = (left, bottom, 0.84 / 3, 0.68 * height / total)
            _draw_axes(figure.add_axes(box), panel)
        content = io.BytesIO()
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _legend(panels: Sequence[Panel | Forest]) -> dict[str, str]:
    """Returns the color of each curve's label; a forest labels its own rows."""
    curves = [panel for panel in panels if isinstance(panel, Panel)]
    return {line.label: line.color for panel in curves for line in panel.lines}


def _legend_lines(legend: Mapping[str, str]) -> int:
    return max(1, -(-len(legend) // _LABELS_PER_LINE))


def _categories(panel: Panel) -> list[float]:
    return sorted({x for line in panel.lines for x in line.x})


def _draw_lines(axes: Axes, panel: Panel) -> None:
    choices = _categories(panel)
    for line in panel.lines:
        if line.dots_only:
            axes.plot(line.x, line.y, "o", color=line.color, ms=5, alpha=0.75)
            continue
        x = [choices.index(at) for at in line.x] if panel.categorical else line.x
        is_exact = panel.categorical or line.interval is not None
        y = line.y if is_exact else smooth(line.y)
        drawn = _drawn_points(len(x))
        if line.interval is not None:
            at, low, high = _take(drawn, x, *line.interval)
            axes.fill_between(at, low, high, color=line.color, alpha=0.18, lw=0)
        if line.show_raw:
            raw = _take(_extreme_points(line.y), x, line.y)
            axes.plot(*raw, color=line.color, alpha=0.3, lw=0.9)
        has_dots = len(x) == 1 or (panel.categorical and not line.faint)
        marker = "o" if has_dots else ""
        weight: dict[str, Any] = {"alpha": 0.4, "lw": 0.9} if line.faint else {}
        curve = _take(drawn, x, y)
        axes.plot(*curve, color=line.color, marker=marker, ms=4, **weight)


def _take(at: np.ndarray, *values: Sequence[float] | np.ndarray) -> list[Any]:
    return [np.asarray(each, float)[at] for each in values]


def _drawn_points(count: int) -> np.ndarray:
    """Returns which of `count` points are drawn: all, or an evenly spaced subset."""
    return np.unique(np.linspace(0, count - 1, min(count, _MAX_POINTS)).astype(int))


def _extreme_points(values: Sequence[float]) -> np.ndarray:
    """Returns which points of an unsmoothed line are drawn.

    If there are too many, these are the minimum and the maximum of each stretch, so no
    spike is lost.
    """
    if len(values) <= _MAX_POINTS:
        return np.arange(len(values))
    stretches = np.array_split(np.asarray(values, float), _MAX_POINTS // 2)
    begins = np.cumsum([0, *map(len, stretches[:-1])])
    ends = [(each.argmin(), each.argmax()) for each in stretches]
    return np.unique(begins[:, None] + np.array(ends))


def _draw_stack(axes: Axes, panel: Panel) -> None:
    x = panel.lines[0].x
    curves = (smooth(line.y) for line in panel.lines)
    axes.stackplot(
        *_take(_drawn_points(len(x)), x, *curves),
        colors=[line.color for line in panel.lines],
        alpha=0.75,
        lw=0,
    )


def _to_inline_svg(svg: str, name: str, title: str) -> markupsafe.Markup:
    """Returns matplotlib's document as an element to embed in a page."""
    svg = svg[svg.index("<svg") :].strip()
    # A <style> inside an inline element would apply to the whole page.
    svg = re.sub(r"\s*<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*; ", "", svg)
    svg = re.sub(r'\s(xmlns(:xlink)?|version)="[^"]*"', "", svg)
    svg = re.sub(r'\sid="', f' id="{name}-', svg)
    svg = re.sub(r'(url\(|(?:xlink:)?href=")#', rf"\1#{name}-", svg)
    svg = svg.replace("xlink:href", "href")
    svg = svg.replace(_INK, "currentColor").replace(_RULE, "var(--rule)")
    head = re.compile(r'<svg width="[^"]*" height="[^"]*"')
    opening = f'<svg role="img" aria-label="{markupsafe.escape(title)}"'
    return markupsafe.Markup(head.sub(lambda _: opening, svg, count=1))
