"""Reads the tables of docs/results/ without the code that wrote them."""

import pathlib

import numpy as np

DOCS = pathlib.Path(__file__).parents[2] / "docs"
TABLES = sorted((DOCS / "results").glob("*.md"))


def read_tables(page: pathlib.Path) -> list[list[dict[str, str]]]:
    """Returns the rows of each table as {column: cell}; column "" is the first."""
    tables: list[list[list[str]]] = []
    inside = False
    for line in page.read_text().splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not inside:
                tables.append([])
            tables[-1].append(cells)
        inside = line.startswith("|")
    return [
        [dict(zip(table[0], line, strict=True)) for line in table[2:]]
        for table in tables
    ]


def read_rows(page: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows of the first table, which has the outcomes of each arm."""
    return read_tables(page)[0]


def read_values(row: dict[str, str]) -> np.ndarray:
    """Returns the values by seed; a seed without one is NaN."""
    cells = row["by seed"].split()
    return np.array([float(x) if x[-1].isdigit() else np.nan for x in cells])
