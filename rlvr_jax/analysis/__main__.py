"""The command `python -m rlvr_jax.analysis`: offline, from workdirs."""

import argparse
import sys
from collections.abc import Sequence

from rlvr_jax.analysis import NotAWorkdirError, write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand. Returns 0; 2 where no run is; 1 where a file is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m rlvr_jax.analysis",
        description="Reads what runs left in their workdirs; writes tables and pages.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    report = commands.add_parser(
        "report",
        help="write report/index.html, one self-contained page, into the workdir",
        description="Writes WORKDIR/report/index.html and prints its path. An "
        "unfinished run gets a report of what there is.",
    )
    report.add_argument("workdir", metavar="WORKDIR")
    chosen = parser.parse_args(arguments)
    try:
        print(write_report(chosen.workdir))
    except NotAWorkdirError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
