"""Reads the tables of docs/results/ without the code that wrote them."""

import pathlib

import numpy as np

DOCS = pathlib.Path(__file__).parents[2] / "docs"
TABLES = sorted((DOCS / "results").glob("*.md"))


def read_rows(table: pathlib.Path) -> list[dict[str, str]]:
    """Returns the table's rows as {column: cell}; column "" names the measure."""
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in table.read_text().splitlines()
        if line.startswith("|")
    ]
    (width,) = {len(line) for line in lines if line[:2] == lines[0][:2]}
    return [
        dict(zip(lines[0], line, strict=True))
        for line in lines[2:]
        if len(line) == width
    ]


def read_values(row: dict[str, str]) -> np.ndarray:
    """Returns the values by seed; a seed without one is NaN."""
    cells = row["by seed"].split()
    return np.array([float(x) if x[-1].isdigit() else np.nan for x in cells])
