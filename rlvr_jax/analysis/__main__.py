"""The command `python -m rlvr_jax.analysis`: offline, from workdirs."""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from job_jax.command import UsageError
from rlvr_jax.analysis import write_report
from rlvr_jax.analysis.compare import compare
from rlvr_jax.analysis.compare_text import text


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand. Returns 0; 2 where no run is; 1 where a file is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m rlvr_jax.analysis",
        description="Reads what runs left in their workdirs; writes tables and pages.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_report(commands)
    _add_compare(commands)
    chosen = parser.parse_args(arguments)
    try:
        chosen.do(chosen)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _add_report(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    command = commands.add_parser(
        "report",
        help="write report/index.html, one self-contained page, into the workdir",
        description="Writes WORKDIR/report/index.html and prints its path. An "
        "unfinished run gets a report of what there is.",
    )
    command.add_argument("workdir", metavar="WORKDIR")
    command.set_defaults(do=lambda chosen: print(write_report(chosen.workdir)))


def _add_compare(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    command = commands.add_parser(
        "compare",
        help="print several runs side by side, with intervals",
        description="Prints held-out scores and training figures of several runs, and "
        "each one's difference to the baseline. Runs that differ by their seed alone "
        "are one arm, with Student's interval over the seeds; an arm of one run has a "
        "bootstrap interval over problems, paired where both were evaluated on the "
        "same. Unfinished runs are compared in what there is.",
    )
    command.add_argument("workdirs", metavar="WORKDIR", nargs="+")
    command.add_argument("--baseline", metavar="WORKDIR", help="default: the first")
    command.add_argument("--out", metavar="FILE", help="write the comparison as JSON")
    command.set_defaults(do=_compare)


def _compare(chosen: argparse.Namespace) -> None:
    found = compare(chosen.workdirs, baseline=chosen.baseline)
    if chosen.out is not None:
        path = pathlib.Path(chosen.out)
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(text(found))


if __name__ == "__main__":
    sys.exit(main())
