"""The subcommand `estimates`: which estimates rank problems as their influence does."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from job_jax.command import check_output_file, run_command
from job_jax.files import write_json
from job_jax.flags import Flags, parse_flags
from rlvr_jax.analysis.estimates.average import (
    Averaged,
    average_estimates,
    read_measured,
)
from rlvr_jax.report.run_files import to_plain_json
from rlvr_jax.report.tables import Table, align_table

_USAGE = """\
usage: python -m rlvr_jax.analysis estimates FILE.json FILE.json ... [--out=FILE.json]

FILE.json is a result of `analysis influence`; give one or more steps of each seed's
run. Prints how well each cheap estimate ranks the problems of a step by their exact
influence: Spearman's correlation, averaged over the steps of a seed and then over
seeds, with Student's 95 % interval and p-values with Holm's correction.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EstimatesFlags(Flags):
    """The flags of this command."""

    out: str = ""  # the file to write


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if the result cannot be written, or 2 on bad usage."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    flags, paths = parse_flags(
        argv, EstimatesFlags, usage=_USAGE, arguments=["FILE.json"], at_least=True
    )
    out = check_output_file(Path(flags.out), (".json",)) if flags.out else None
    results = read_measured(paths)
    averaged = average_estimates(results)
    counts = [one.num_problems for one in results]
    print(
        f"{len(results)} steps of {len({one.seed for one in results})} seeds, "
        f"{min(counts)} to {max(counts)} problems with a signal\n"
    )
    if averaged:
        print(align_table(_table(averaged)))
    else:
        print("no correlations: no step has three different influences")
    if out is not None:
        rows = [dataclasses.asdict(one) for one in averaged]
        write_json(out, to_plain_json({"files": paths, "estimates": rows}))
        print(out)


def _table(averaged: Sequence[Averaged]) -> Table:
    rows = []
    for one in averaged:
        value, low, high = one.over_seeds.interval
        interval = "" if math.isnan(low) else f" [{low:+.2f}, {high:+.2f}]"
        by_seed = "  ".join(
            f"{seed}: {each:+.2f}" for seed, each in one.over_seeds.by_seed.items()
        )
        rows.append(
            (
                one.outcome,
                one.estimate,
                f"{value:+.2f}{interval}",
                f"{one.p:.3f}",
                f"{one.p_holm:.3f}",
                by_seed,
            )
        )
    head = ("outcome", "estimate", "rank correlation", "p", "Holm", "by seed")
    return Table(head=head, rows=rows)
