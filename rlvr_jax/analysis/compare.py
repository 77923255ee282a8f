"""The command `python -m rlvr_jax.analysis compare WORKDIR WORKDIR ...`."""

import argparse
import json
import pathlib
from collections.abc import Sequence

from job_jax.command import ArgumentParser, exit_code
from rlvr_jax.analysis.comparison import compare
from rlvr_jax.analysis.comparison_text import text


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where there is no run."""
    return exit_code(lambda: _compare(_parser().read(argv)), (OSError, ValueError))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m rlvr_jax.analysis compare",
        description="Prints held-out scores and training figures of several runs, and "
        "each one's difference to the baseline. Runs that differ by their seed alone "
        "are one arm, with Student's interval over the seeds; an arm of one run has a "
        "bootstrap interval over problems, paired where both were evaluated on the "
        "same. Unfinished runs are compared in what there is.",
    )
    parser.add_argument("workdirs", metavar="WORKDIR", nargs="+")
    parser.add_argument("--baseline", metavar="WORKDIR", help="default: the first")
    parser.add_argument("--out", metavar="FILE", help="write the comparison as JSON")
    return parser


def _compare(chosen: argparse.Namespace) -> None:
    found = compare(chosen.workdirs, baseline=chosen.baseline)
    if chosen.out is not None:
        path = pathlib.Path(chosen.out)
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(text(found))
