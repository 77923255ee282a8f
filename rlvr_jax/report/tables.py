"""Numbers and tables as text, for the terminal and for pages."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

# A number and its unit stay on one line.
NO_BREAK_SPACE = "\u00a0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def align_table(table: Table) -> str:
    """Returns the table as text, each column as wide as its widest cell."""
    rows = [table.head, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def markdown_table(table: Table) -> list[str]:
    """Returns the table as lines of Markdown."""
    rows = [table.head, ["---"] * len(table.head), *table.rows]
    return [f"| {' | '.join(row)} |" for row in rows]


def format_percent(fraction: float) -> str:
    """Returns a fraction as "63 %"."""
    return f"{100 * fraction:.0f}{NO_BREAK_SPACE}%"


def format_interval(interval: Mapping[str, float | None]) -> str:
    """Returns the interval's ends as "59-67 %", with an en dash, or "no interval"."""
    low, high = interval["low"], interval["high"]
    if low is None or high is None:
        return "no interval"
    return f"{100 * low:.0f}\u2013{100 * high:.0f}{NO_BREAK_SPACE}%"


def format_with_interval(interval: Mapping[str, Any]) -> str:
    """Returns "63 % (59-67 %)"."""
    return f"{format_percent(interval['mean'])} ({format_interval(interval)})"


def format_gain(interval: Mapping[str, Any]) -> str:
    """Returns the difference of two fractions as "+28 points (+23 to +33)"."""
    mean, low, high = (interval[name] for name in ("mean", "low", "high"))
    ends = "no interval" if low is None else f"{100 * low:+.0f} to {100 * high:+.0f}"
    return f"{100 * mean:+.0f} points ({ends})"


def describe_crossing(
    name: str, other: str, crossing: Mapping[str, object] | None
) -> str:
    """Returns which of two pass@k curves leads, up to which k, with its interval."""
    if crossing is None:
        return f"{name}, {other}: no crossing (a tie at k = 1, or a single problem)"
    leader, behind = (name, other) if crossing["leads"] else (other, name)
    max_k = crossing["max_k"]
    low, high = (
        f"beyond {max_k}" if crossing[end] is None else str(crossing[end])
        for end in ("low", "high")
    )
    ends = f"beyond {max_k}" if low == high else f"{low} to {high}"
    sure = f"95 % interval {ends}, bootstrap over problems"
    if crossing["k"] is None:
        return f"{leader} leads {behind} at every k up to {max_k} (crossing: {sure})"
    return f"{leader} leads {behind} below k = {crossing['k']} ({sure})"


def mean(values: Sequence[float]) -> float:
    """Returns the mean of at least one value."""
    return sum(values) / len(values)


def first_and_last_tenth(values: Sequence[float]) -> tuple[float, float]:
    """Returns the means of the first and of the last tenth of the values."""
    tenth = max(1, len(values) // 10)
    return mean(values[:tenth]), mean(values[-tenth:])
