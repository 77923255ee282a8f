"""Rows of a comparison's tables: their labels, and which metrics are shown."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

from job_jax.flags import Flags, UsageError
from job_jax.schema import did_you_mean
from rlvr_jax.analysis.compare.metric import FRESH_BAND

PERCENT = ", %"  # ends the label of a fraction


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsFlags(Flags):
    """The flag that chooses rows."""

    rows: str = ""  # rows of the tables, as NAME,NAME; * matches any text


def split_rows(text: str) -> list[str]:
    """Returns the names in the value of --rows; "pass@1, hard" is one name.

    >>> split_rows("pass@1, hard,reward*")
    ['pass@1, hard', 'reward*']
    """
    return re.split(r",(?! )", text) if text else []


def choose_rows(comparison: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns the comparison with `rows`: the labels that names and patterns match.

    Rows are in the order of the names. In a pattern, `*` matches any text and `?` any
    character; upper and lower case are alike. Without names nothing is chosen, and a
    table shows its own rows. Raises UsageError if a name matches no row.
    """
    if not names:
        return {**comparison}
    labels = [label_metric(metric) for metric in comparison["metrics"]]
    rows: list[str] = []
    for name in names:
        pattern = name.strip().removesuffix(PERCENT).lower()
        found = [
            label for label in labels if fnmatch.fnmatchcase(label.lower(), pattern)
        ]
        if not found:
            comma = "; names are separated by a comma without a space"
            raise UsageError(
                f"no row is named {name!r}{did_you_mean(name, labels)}"
                f"{comma if ', ' in name else ''}"
            )
        rows += found
    return {**comparison, "rows": [*dict.fromkeys(rows)]}


def table_metrics(comparison: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the metrics that `choose_rows` chose, in its order.

    Without a choice, these are the metrics without a k and the ends of each curve.
    """
    metrics = comparison["metrics"]
    if "rows" in comparison:
        return [
            m for row in comparison["rows"] for m in metrics if label_metric(m) == row
        ]
    ks_of: dict[tuple[str, str, str], list[int]] = {}
    for m in metrics:
        ks_of.setdefault((m["name"], m["grouping"], m["group"]), []).append(m["k"])
    return [
        m
        for m in metrics
        if m["k"] is None
        or m["k"] in (min(ks := ks_of[m["name"], m["grouping"], m["group"]]), max(ks))
    ]


def label_metric(metric: Mapping[str, Any]) -> str:
    """Returns a metric's label, such as "pass@8, hard" or "pass@8, hard, fresh"."""
    name = metric["name"].replace("@k", f"@{metric['k']}")
    parts = [name, metric["group"], "fresh" * (metric["grouping"] == FRESH_BAND)]
    return ", ".join(filter(None, parts))
