"""The command `python -m rlvr_jax.analysis experiment DIR`."""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from job_jax.command import parse_flags, run_command
from rlvr_jax.analysis.experiment.page import render_markdown, write_results
from rlvr_jax.analysis.experiment.results import read_results
from rlvr_jax.config.experiment import RESULT_FOLDER

_USAGE = """\
usage: python -m rlvr_jax.analysis experiment DIR [--baseline=ARM] [--arms=ARM,ARM]
           [--outcome=NAME] [--out=FOLDER]

Writes DIR/result/ from the runs in DIR, the --workdir of python -m rlvr_jax.experiment:
index.html, a page; table.md, what was asked; table.csv, table.tex, comparison.json, all
that runs are compared in; figure.svg, figure.png. Prints table.md. An unfinished
experiment gets what there is.

With another arm as --baseline, with some of the arms as --arms, beside the baseline, or
with another --outcome first, in the table and in the figures, the table is printed, and
files are written only where --out=FOLDER says: differences are from that baseline, and
a seed counts that has these arms.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where there is no experiment."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    flags.DEFINE_string(
        "baseline", "", "the arm that differences are from", flag_values=values
    )
    flags.DEFINE_list("arms", [], "the arms that are told of", flag_values=values)
    flags.DEFINE_string(
        "outcome", "", "the outcome that is told of first", flag_values=values
    )
    flags.DEFINE_string("out", "", "the folder to write to", flag_values=values)
    (folder,) = parse_flags(argv, values, usage=_USAGE, arguments=["DIR"])
    results = read_results(
        Path(folder),
        baseline=values.baseline,
        only=values.arms,
        outcome=values.outcome,
    )
    print(render_markdown(results))
    is_as_asked = not (values.baseline or values.arms or values.outcome)
    if values.out or is_as_asked:
        place = Path(values.out or Path(folder) / RESULT_FOLDER)
        print(write_results(place, results))
