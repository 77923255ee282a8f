"""A comparison as files: JSON, CSV, LaTeX, and figures, chosen by a file's ending."""

import csv
import io
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from job_jax.command import check_output_file
from rlvr_jax.analysis.charts import draw_sheet, draw_sheet_png
from rlvr_jax.analysis.compare.arms import ExperimentArm
from rlvr_jax.analysis.compare.figure import comparison_panels
from rlvr_jax.analysis.compare.text import comparison_table

_TITLE = "Runs compared: arms, and faintly their seeds"
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
    """Returns the files to write. Raises UsageError where one cannot be."""
    return [check_output_file(pathlib.Path(name), [*_WRITERS]) for name in names]


def write_comparison(
    path: pathlib.Path, comparison: _Comparison, arms: Sequence[ExperimentArm]
) -> None:
    """Writes the comparison of `arms` in the format of the file's ending."""
    path.write_bytes(_WRITERS[path.suffix](comparison, arms))


def _to_json(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    return (json.dumps(comparison, indent=2) + "\n").encode()


def _to_csv(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    """Returns a row for each metric and arm, and one for each of its seeds.

    Fractions lie in 0..1. An arm's row has no seed, and a seed's row no interval.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, _CSV_FIELDS, lineterminator="\n")
    table.writeheader()
    for metric in comparison["metrics"]:
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
    for seed, mean in metric["seeds"][arm].items():
        yield {**shared, "seed": seed, "value": mean}


def _to_latex(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    """Returns the printed table as a tabular of the package booktabs."""
    table = comparison_table(comparison)
    head, *rows = (
        " & ".join(_to_tex(cell) for cell in row) + r" \\"
        for row in (table.head, *table.rows)
    )
    lines = [
        r"% \usepackage{booktabs}; [95 % intervals], letters as in docs/analysis.md",
        rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return ("\n".join(lines) + "\n").encode()


def _to_tex(cell: str) -> str:
    """Returns a cell for LaTeX, the signs of its numbers as those of mathematics."""
    return _NUMBER.sub(r"$\1$", cell.translate(_TEX))


def _to_svg(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    return draw_sheet("compare", _TITLE, comparison_panels(comparison, arms)).encode()


def _to_png(comparison: _Comparison, arms: Sequence[ExperimentArm]) -> bytes:
    return draw_sheet_png(_TITLE, comparison_panels(comparison, arms))


_WRITERS: dict[str, _Writer] = {
    ".json": _to_json,
    ".csv": _to_csv,
    ".tex": _to_latex,
    ".svg": _to_svg,
    ".png": _to_png,
}
