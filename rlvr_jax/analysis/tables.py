"""Numbers and tables as text, on paper and on a page alike."""

import dataclasses
from collections.abc import Mapping, Sequence

# A number and its unit stay on one line.
_NO_BREAK_SPACE = "\u00a0"


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


def format_percent(fraction: float) -> str:
    """Returns a fraction as "63 %"."""
    return f"{100 * fraction:.0f}{_NO_BREAK_SPACE}%"


def format_interval(interval: Mapping[str, float]) -> str:
    """Returns the interval's ends as "59-67 %", with an en dash."""
    low, high = interval["low"], interval["high"]
    return f"{100 * low:.0f}\u2013{100 * high:.0f}{_NO_BREAK_SPACE}%"


def format_with_interval(interval: Mapping[str, float]) -> str:
    """Returns "63 % (59-67 %)"."""
    return f"{format_percent(interval['mean'])} ({format_interval(interval)})"


def mean(values: Sequence[float]) -> float:
    """Returns the mean of at least one value."""
    return sum(values) / len(values)


def first_and_last_tenth(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean of the first tenth of the values, and that of the last."""
    tenth = max(1, len(values) // 10)
    return mean(values[:tenth]), mean(values[-tenth:])
