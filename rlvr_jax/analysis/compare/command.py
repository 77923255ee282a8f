"""The command `python -m rlvr_jax.analysis compare WORKDIR WORKDIR ...`."""

from collections.abc import Sequence

from absl import flags

from job_jax.command import parse_flags, run_command
from rlvr_jax.analysis.compare.arms import compare_arms, read_arms
from rlvr_jax.analysis.compare.export import check_outputs, write_comparison
from rlvr_jax.analysis.compare.text import format_comparison

_USAGE = """\
usage: python -m rlvr_jax.analysis compare WORKDIR ... [--baseline=WORKDIR]
           [--out=FILE,FILE ...]

Prints held-out scores and training metrics of several runs, and each one's difference
to the baseline. Runs that differ by their seed alone are one arm, with Student's
interval over the seeds, each of which stands beside it; an arm of one run has a
bootstrap interval over problems, paired where both were evaluated on the same.
Unfinished runs are compared in what there is.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where there is no run."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    flags.DEFINE_string(
        "baseline", None, "a WORKDIR; the first by default", flag_values=values
    )
    flags.DEFINE_list(
        "out",
        None,
        "files to write: .json, .csv, .tex (booktabs), .svg, .png (charts)",
        flag_values=values,
    )
    workdirs = parse_flags(
        argv, values, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    outputs = check_outputs(values.out or [])
    arms = read_arms(workdirs, baseline=values.baseline)
    comparison = compare_arms(arms)
    for path in outputs:
        write_comparison(path, comparison, arms)
    print(format_comparison(comparison))
