"""The command `python -m rlvr_jax.analysis experiment DIR`."""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from job_jax.command import parse_flags, run_command
from rlvr_jax.analysis.experiment.page import render_markdown, write_results
from rlvr_jax.analysis.experiment.results import read_results

_USAGE = """\
usage: python -m rlvr_jax.analysis experiment DIR

Writes DIR/result/ from the runs in DIR, the --workdir of python -m rlvr_jax.experiment:
index.html, a page; table.md, table.csv, table.tex; figure.svg, figure.png;
comparison.json. Prints the table. An unfinished experiment gets what there is.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where there is no experiment."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    (folder,) = parse_flags(argv, values, usage=_USAGE, arguments=["DIR"])
    page = write_results(Path(folder))
    print(render_markdown(read_results(Path(folder))))
    print(page)
