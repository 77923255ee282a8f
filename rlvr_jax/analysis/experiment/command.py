"""The command `python -m rlvr_jax.analysis experiment DIR`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from job_jax.command import run_command
from job_jax.flags import parse_flags
from rlvr_jax.analysis.compare.rows import RowsFlags, split_rows
from rlvr_jax.analysis.experiment.page import render_markdown, write_results
from rlvr_jax.analysis.experiment.results import read_results
from rlvr_jax.config.experiment import RESULT_FOLDER

_USAGE = """\
usage: python -m rlvr_jax.analysis experiment DIR [--baseline=ARM] [--arms=ARM,ARM]
           [--outcome=NAME] [--rows=NAME,NAME ...] [--out=FOLDER]

Writes DIR/result/ from the runs in DIR, the --workdir of python -m rlvr_jax.experiment:
index.html is a page, table.md has the experiment's outcomes, and table.csv, table.tex
and comparison.json have all metrics. There are also figure.svg and figure.png. Prints
table.md. An unfinished experiment gets results for the runs so far.

Other views: --baseline=ARM takes differences from another arm, --arms=ARM,ARM compares
only these arms with the baseline (a seed counts if these arms have it),
--outcome=NAME shows another outcome first in the table and in the figures, and
--rows=NAME,NAME chooses the rows of the tables, such as --rows="pass@1*,reward". They
print the table, and write files only with --out=FOLDER.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentFlags(RowsFlags):
    """The flags of this command."""

    baseline: str = ""  # the arm that differences are from
    arms: tuple[str, ...] = ()  # the arms to compare
    outcome: str = ""  # the outcome to show first
    out: str = ""  # the folder to write to


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if DIR holds no experiment."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    flags, (folder,) = parse_flags(
        argv, ExperimentFlags, usage=_USAGE, arguments=["DIR"]
    )
    results = read_results(
        Path(folder),
        baseline=flags.baseline,
        only=flags.arms,
        outcome=flags.outcome,
        rows=split_rows(flags.rows),
    )
    print(render_markdown(results))
    is_view = flags.baseline or flags.arms or flags.outcome or flags.rows
    if flags.out or not is_view:
        place = Path(flags.out or Path(folder) / RESULT_FOLDER)
        print(write_results(place, results))
