"""The command `python -m rlvr_jax.analysis compare WORKDIR WORKDIR ...`."""

import dataclasses
from collections.abc import Sequence

from job_jax.command import run_command
from job_jax.flags import parse_flags
from rlvr_jax.analysis.compare.arms import compare_arms, read_arms
from rlvr_jax.analysis.compare.export import check_outputs, write_comparison
from rlvr_jax.analysis.compare.rows import RowsFlags, choose_rows, split_rows
from rlvr_jax.analysis.compare.text import format_comparison

_USAGE = """\
usage: python -m rlvr_jax.analysis compare WORKDIR ... [--baseline=WORKDIR]
           [--rows=NAME,NAME ...] [--out=FILE,FILE ...]

Prints held-out scores and training metrics of several runs, and their differences from
the baseline. Runs that differ only in their seed are one arm: its mean is shown with
the values of its seeds, and from three seeds on with Student's interval over them. An
arm with one run has a bootstrap interval over problems, paired if both arms were
evaluated on the same problems. Unfinished runs are compared as far as they have data.

--rows chooses the rows of the tables by their names, such as --rows="pass@1,*, hard".
"pass@1, hard, fresh" are scores whose band was chosen by other samples: trust changes
in these rows, not in "pass@1, hard" (docs/method/difficulty.md).
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareFlags(RowsFlags):
    """The flags of this command."""

    baseline: str = ""  # a WORKDIR; by default the first
    # files to write: .json, .csv, .tex (booktabs), .md, .svg, .png (charts)
    out: tuple[str, ...] = ()


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if a directory holds no run."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    flags, workdirs = parse_flags(
        argv, CompareFlags, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    outputs = check_outputs(flags.out)
    arms = read_arms(workdirs, baseline=flags.baseline)
    comparison = choose_rows(compare_arms(arms), split_rows(flags.rows))
    for path in outputs:
        write_comparison(path, comparison, arms)
    print(format_comparison(comparison))
