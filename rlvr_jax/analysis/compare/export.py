"""Writes a comparison as JSON, a table or a figure, chosen by the file's suffix."""

import csv
import io
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from job_jax.command import check_output_file
from rlvr_jax.analysis.compare.arms import ExperimentArm
from rlvr_jax.analysis.compare.figure import comparison_panels
from rlvr_jax.analysis.compare.reading import explain_numbers
from rlvr_jax.analysis.compare.rows import table_metrics
from rlvr_jax.analysis.compare.text import comparison_table
from rlvr_jax.report.charts import draw_sheet, draw_sheet_png
from rlvr_jax.report.tables import markdown_table

_TITLE = "Comparison of runs: arms, with their seeds as faint lines"
_CSV_FIELDS = (
    "metric",
    "k",
    "grouping",
    "group",
    "arm",
    "seed",
    "value",
    "low",
    "high",
    "runs",
    "problems",
    "difference",
    "difference_low",
    "difference_high",
    "method",
)
_TEX = str.maketrans(
    {
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)
_NUMBER = re.compile(r"([+-])(?=\d)")

_Comparison = Mapping[str, Any]
_Writer = Callable[[_Comparison, Sequence[ExperimentArm]], bytes]


def check_outputs(names: Sequence[str]) -> list[pathlib.Path]:
    """Returns the files to write. Raises UsageError if one cannot be written."""
    return [check_output_file(pathlib.Path(name), [*_WRITERS]) for name in names]


def write_comparison(
    path: pathlib.Path, comparison: _Comparison, arms: Sequence[ExperimentArm]
) -> None:
    """Writes the comparison of `arms` in the format of the file's suffix."""
    path.write_bytes(_WRITERS[path.suffix](comparison, arms))


def _to_json(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    return (json.dumps(comparison, indent=2) + "\n").encode()


def _to_csv(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    """Returns a row for each metric and arm, followed by a row for each seed.

    Fractions are in 0..1. An arm's row has no seed, and a seed's row has no interval.
    All k are written, unless rows were chosen.
    """
    all_metrics = comparison["metrics"]
    metrics = table_metrics(comparison) if "rows" in comparison else all_metrics
    text = io.StringIO()
    table = csv.DictWriter(text, _CSV_FIELDS, lineterminator="\n")
    table.writeheader()
    for metric in metrics:
        for arm in comparison["arms"]:
            table.writerows(_csv_rows(metric, arm["label"]))
    return text.getvalue().encode()


def _csv_rows(metric: Mapping[str, Any], arm: str) -> Iterator[dict[str, Any]]:
    value = metric["values"][arm]
    if value is None:
        return
    shared = {
        "metric": metric["name"],
        **{name: metric[name] for name in ("k", "grouping", "group")},
        "arm": arm,
    }
    difference = metric["differences"].get(arm) or {}
    yield {
        **shared,
        "value": value["mean"],
        **{name: value.get(name) for name in ("low", "high", "runs", "problems")},
        "difference": difference.get("mean"),
        "difference_low": difference.get("low"),
        "difference_high": difference.get("high"),
        "method": difference.get("method"),
    }
    by_seed = difference.get("seeds", {})
    for seed, mean in metric["seeds"][arm].items():
        yield {**shared, "seed": seed, "value": mean, "difference": by_seed.get(seed)}


def _to_latex(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    """Returns the printed table as a tabular of the package booktabs."""
    table = comparison_table(comparison)
    head, *rows = (
        " & ".join(_to_tex(cell) for cell in row) + r" \\"
        for row in (table.head, *table.rows)
    )
    lines = [
        r"% \usepackage{booktabs}",
        *(f"% {sentence}" for sentence in explain_numbers(comparison)),
        rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return ("\n".join(lines) + "\n").encode()


def _to_markdown(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    """Returns the printed table, and the sentences that explain it."""
    table = markdown_table(comparison_table(comparison))
    return ("\n".join([*table, "", *explain_numbers(comparison)]) + "\n").encode()


def _to_tex(cell: str) -> str:
    """Returns a cell for LaTeX, with the signs of numbers in math mode."""
    return _NUMBER.sub(r"$\1$", cell.translate(_TEX))


def _to_svg(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    return draw_sheet("compare", _TITLE, comparison_panels(comparison, arms)).encode()


def _to_png(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    return draw_sheet_png(_TITLE, comparison_panels(comparison, arms))


_WRITERS: dict[str, _Writer] = {
    ".json": _to_json,
    ".csv": _to_csv,
    ".tex": _to_latex,
    ".md": _to_markdown,
    ".svg": _to_svg,
    ".png": _to_png,
}
