"""The subcommand `warnings`: which training metrics warn before pass@1 falls."""

import dataclasses
from collections.abc import Sequence

from job_jax.command import run_command
from job_jax.flags import Flags, parse_flags
from job_jax.schema import NonNegativeFloat
from rlvr_jax.analysis.warnings.measure import (
    LIMIT,
    MARGIN,
    WINDOW,
    MetricWarning,
    WatchedRun,
    find_warnings,
    watch_run,
)
from rlvr_jax.report.run_files import read_runs
from rlvr_jax.report.tables import Table, align_table, format_percent

_USAGE = """\
usage: python -m rlvr_jax.analysis warnings RUN RUN ... [--margin=0.05]

RUN is the workdir of a finished run that was evaluated during training (eval.every).
Prints the step at which held-out pass@1 had fallen by --margin, which training metrics
had moved before and how many steps earlier, and in how many runs without a fall they
moved too. Give both kinds of runs: a metric that moves in all of them warns of nothing.
"""
_READING = (
    "fell at: the first of two consecutive evaluations more than {margin} points below "
    "pass@1 before RL.\nmoved: the mean of the last {window} steps is {limit:g} "
    "standard errors from the mean of the first {window}. Ahead: before that "
    "evaluation; steps: median (lowest to highest) over runs that fell and in which "
    "the metric moved.\n"
    "{count} metrics were watched in both directions; nothing is corrected for that."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarningsFlags(Flags):
    """The flags of this command."""

    margin: NonNegativeFloat = MARGIN  # size of a fall of pass@1


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if runs cannot be used."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    flags, given = parse_flags(
        argv, WarningsFlags, usage=_USAGE, arguments=["RUN"], at_least=True
    )
    runs = [
        watch_run(run, name=name, margin=flags.margin)
        for name, run in read_runs(given).items()
    ]
    print(align_table(_runs_table(runs)))
    print()
    warnings = find_warnings(runs)
    if warnings:
        print(align_table(_warnings_table(runs, warnings)))
    elif any(run.fell for run in runs):
        print("no metric had moved before pass@1 fell")
    else:
        print("pass@1 fell in no run: there is nothing to warn of")
    print()
    print(
        _READING.format(
            margin=f"{100 * flags.margin:g}",
            window=WINDOW,
            limit=LIMIT,
            count=len({metric for run in runs for metric in run.watched}),
        )
    )


def _runs_table(runs: Sequence[WatchedRun]) -> Table:
    rows = [
        (
            run.name,
            format_percent(run.before),
            format_percent(run.lowest),
            "never" if run.fell is None else str(run.fell),
        )
        for run in runs
    ]
    return Table(head=("run", "pass@1 before", "lowest", "fell at step"), rows=rows)


def _warnings_table(
    runs: Sequence[WatchedRun], warnings: Sequence[MetricWarning]
) -> Table:
    num_fallen = sum(run.fell is not None for run in runs)
    num_level = len(runs) - num_fallen
    rows = [
        (
            f"{warning.metric} {warning.direction}",
            f"{warning.ahead} of {num_fallen}",
            f"{warning.median_lead:g} ({min(warning.leads)} to {max(warning.leads)})",
            f"{warning.false_alarms} of {num_level}",
        )
        for warning in warnings
    ]
    head = ("metric", "ahead of the fall in", "steps ahead", "moves without a fall in")
    return Table(head=head, rows=rows)
