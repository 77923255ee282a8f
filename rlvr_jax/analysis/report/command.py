"""The command `python -m rlvr_jax.analysis report WORKDIR`."""

from collections.abc import Sequence

from absl import flags

from job_jax.command import parse_flags, run_command
from rlvr_jax.analysis.report.page import write_report
from rlvr_jax.run.fetch import local_run

_USAGE = """\
usage: python -m rlvr_jax.analysis report WORKDIR

Writes WORKDIR/report/index.html and prints its path. An unfinished run gets a report
of what there is.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where there is no run."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    (workdir,) = parse_flags(argv, values, usage=_USAGE, arguments=["WORKDIR"])
    print(write_report(local_run(workdir)))
