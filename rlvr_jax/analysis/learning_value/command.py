"""The subcommand `learning_value`: what predicts which problem is worth training on."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from job_jax.command import run_command
from job_jax.files import write_atomically, write_json
from job_jax.flags import Flags, parse_flags
from rlvr_jax.analysis.learning_value.measure import (
    OneSampleRun,
    average_by_band,
    check_alike,
    correlate_ranks,
    read_one_sample_run,
)
from rlvr_jax.metrics.ranks import OverSeeds
from rlvr_jax.report.charts import (
    BLUE,
    GRAY,
    Forest,
    ForestRow,
    draw_sheet,
    draw_sheet_png,
)
from rlvr_jax.report.run_files import read_runs, to_plain_json
from rlvr_jax.report.tables import Table, align_table

_USAGE = """\
usage: python -m rlvr_jax.analysis learning_value RUN RUN ... [--out=FOLDER]

RUN is the workdir of a finished run on a single problem (curriculum.name=one_sample).
Runs may differ only in the problem and in the seed. Prints the learning value by band,
and how it correlates with properties of the policy's first completions: Spearman's
correlation within the runs of a seed, and its mean over seeds.
With --out, it writes learning_value.json, .svg and .png there.
"""
_TITLE = "What single problems taught"
_Bands = Mapping[str, tuple[OverSeeds, OverSeeds]]  # learning value, learned
_READING = (
    "learning value: points of held-out pass@1 that RL on one problem added.\n"
    "learned: points of that problem's pass rate, last step minus first.\n"
    "Both are means over seeds, with Student's 95 % interval if at least two seeds "
    "differ.\nProperties are correlated with each other, and nothing is corrected for "
    "testing several."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningValueFlags(Flags):
    """The flags of this command."""

    out: str = ""  # the folder to write to


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if runs cannot be used."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    flags, given = parse_flags(
        argv, LearningValueFlags, usage=_USAGE, arguments=["RUN"], at_least=True
    )
    found = read_runs(given)
    runs = [read_one_sample_run(run, name=name) for name, run in found.items()]
    check_alike(found)
    bands, correlations = average_by_band(runs), correlate_ranks(runs)
    print(align_table(_bands_table(runs, bands)))
    print()
    if correlations:
        print(align_table(_correlations_table(correlations)))
    else:
        print("no correlations: no seed has three problems that differ")
    print(f"\n{_READING}")
    if flags.out:
        print(_write_files(Path(flags.out), runs, bands, correlations))


def _bands_table(runs: Sequence[OneSampleRun], bands: _Bands) -> Table:
    rows = []
    for band, (value, learned) in bands.items():
        same = [run for run in runs if run.band == band]
        rows.append(
            (
                band,
                str(len(same)),
                _with_interval(value, scale=100, digits=1),
                f"{sum(run.value > 0 for run in same)} of {len(same)}",
                _with_interval(learned, scale=100, digits=1),
            )
        )
    head = ("band before RL", "problems", "learning value", "above 0", "learned")
    return Table(head=head, rows=rows)


def _correlations_table(correlations: Mapping[str, OverSeeds]) -> Table:
    rows = [
        (
            name,
            _with_interval(found, scale=1, digits=2),
            "  ".join(f"{seed}: {each:+.2f}" for seed, each in found.by_seed.items()),
        )
        for name, found in correlations.items()
    ]
    return Table(head=("property", "rank correlation", "by seed"), rows=rows)


def _with_interval(found: OverSeeds, *, scale: float, digits: int) -> str:
    mean, low, high = (f"{scale * end:+.{digits}f}" for end in found.interval)
    return mean if math.isnan(found.interval.low) else f"{mean} [{low}, {high}]"


def _write_files(
    folder: Path,
    runs: Sequence[OneSampleRun],
    bands: _Bands,
    correlations: Mapping[str, OverSeeds],
) -> Path:
    """Writes the numbers and the figure; returns the figure's path."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "runs": [vars(run) for run in runs],
        "by_band": {
            band: {"learning_value": _to_json(value), "learned": _to_json(learned)}
            for band, (value, learned) in bands.items()
        },
        "rank_correlations": {
            name: _to_json(found) for name, found in correlations.items()
        },
    }
    write_json(folder / "learning_value.json", to_plain_json(content))
    of_bands = {
        f"{band}, {sum(run.band == band for run in runs)} problems": (
            found,
            [run.value for run in runs if run.band == band],
        )
        for band, (found, _) in bands.items()
    }
    of_properties = {
        name: (found, [*found.by_seed.values()]) for name, found in correlations.items()
    }
    panels = [
        Forest(
            title="Learning value, dots are problems",
            rows=_forest_rows(of_bands, BLUE),
            percent=True,
        ),
        Forest(
            title="Rank correlation with it, dots are seeds",
            rows=_forest_rows(of_properties, GRAY),
        ),
    ]
    with write_atomically(folder / "learning_value.png") as partial:
        partial.write_bytes(draw_sheet_png(_TITLE, panels))
    figure = folder / "learning_value.svg"
    with write_atomically(figure) as partial:
        partial.write_text(draw_sheet("learning_value", _TITLE, panels))
    return figure


def _forest_rows(
    rows: Mapping[str, tuple[OverSeeds, Sequence[float]]], color: str
) -> list[ForestRow]:
    return [
        ForestRow(
            label=label,
            color=color,
            value=found.interval.value,
            low=found.interval.low,
            high=found.interval.high,
            points=points,
        )
        for label, (found, points) in rows.items()
    ]


def _to_json(found: OverSeeds) -> dict[str, object]:
    return {**found.interval.to_json(), "by_seed": found.by_seed}
