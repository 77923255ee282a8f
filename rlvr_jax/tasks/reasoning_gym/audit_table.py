"""The audit's rows as Markdown and JSON."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from job_jax.files import write_atomically
from rlvr_jax.tasks.reasoning_gym.audit import Row
from rlvr_jax.tasks.reasoning_gym.refused import NOT_RUN, REFUSED

_HEADER = """\
| generator | levels | ms to make | ms to score | one answer fits | lenient | repeated |
|---|---|--:|--:|--:|--:|--:|"""


def read_pass_rates(path: Path) -> dict[str, str]:
    """Returns generators' pass@1 and number of samples as text, from evaluate's JSON.

    Raises ValueError if the file holds something else.
    """
    try:
        return {
            name: f"{scores['pass@k']['1']['mean']:.0%} of {scores['samples']}"
            for name, scores in json.loads(path.read_text())["by_type"].items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"--pass_rates={path} is not what python -m rlvr_jax.evaluate prints "
            f"({type(error).__name__}: {error})"
        ) from error


def write_audit(
    path: Path, rows: Sequence[Row], *, version: str, pass_rates: Mapping[str, str]
) -> None:
    """Writes the rows as JSON or Markdown, depending on the file's suffix."""
    if path.suffix == ".json":
        content = {
            "reasoning-gym": version,
            "generators": [dataclasses.asdict(row) for row in rows],
        }
        text = json.dumps(content, indent=1) + "\n"
    else:
        text = format_tables(rows, pass_rates)
    with write_atomically(path) as partial:
        partial.write_text(text)


def format_tables(rows: Sequence[Row], pass_rates: Mapping[str, str]) -> str:
    """Returns a table of working generators, and a table of refused ones.

    The first one gets a column of `pass_rates`, if there are any.
    """
    works = [row for row in rows if not row.faults and row.name not in REFUSED]
    lines = [*_HEADER.splitlines(), *map(_format_row, works)]
    if pass_rates:
        cells = ["pass@1", "--:", *(pass_rates.get(row.name, "") for row in works)]
        lines = [f"{line} {cell} |" for line, cell in zip(lines, cells, strict=True)]
    lines += ["", "| refused | why |", "|---|---|"]
    reasons = NOT_RUN | {
        row.name: "; ".join(row.faults) or REFUSED[row.name]
        for row in rows
        if row not in works
    }
    lines += [f"| `{name}` | {_escape(reasons[name])} |" for name in sorted(reasons)]
    return "\n".join(lines) + "\n"


def _format_row(row: Row) -> str:
    measured = row.measured
    cells = [
        f"`{row.name}`" + ("*" if measured.no_gold == 1 else ""),
        _format_levels(row),
        _format_ms(measured.item_s),
        _format_ms(measured.score_s),
        f"{measured.constant:.0%}",
        f"{measured.hedged:.0%}" if measured.hedged else "",
        f"{measured.repeated:.0%}" if measured.repeated else "",
    ]
    return f"| {' | '.join(cells)} |"


def _format_levels(row: Row) -> str:
    count, bad = row.measured.num_levels, row.measured.bad_levels
    if not count:
        return ""
    good = [level for level in range(count) if level not in bad]
    if good == list(range(len(good))):
        return f"0..{len(good) - 1}" if good else "none works"
    return ", ".join(map(str, good))


def _format_ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}" if seconds < 0.01 else f"{1000 * seconds:.0f}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
