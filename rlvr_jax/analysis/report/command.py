"""The command `python -m rlvr_jax.analysis report WORKDIR`."""

from collections.abc import Sequence

from job_jax.command import run_command
from job_jax.flags import Flags, parse_flags
from rlvr_jax.report.page import write_report
from rlvr_jax.run.fetch import local_run

_USAGE = """\
usage: python -m rlvr_jax.analysis report WORKDIR

Writes WORKDIR/report/index.html and prints its path. An unfinished run gets a report
on the data so far.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if WORKDIR holds no run."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    _, (workdir,) = parse_flags(argv, Flags, usage=_USAGE, arguments=["WORKDIR"])
    print(write_report(local_run(workdir)))
