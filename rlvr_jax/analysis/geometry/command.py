"""The subcommand `geometry`: how RL moved the weights, from checkpoints."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import check_output_file, run_command
from job_jax.files import write_json
from job_jax.flags import Flags, parse_flags
from job_jax.metrics import Progress
from rlvr_jax.analysis.compare.arms import group_runs, read_training_run
from rlvr_jax.analysis.geometry.equal_movement import (
    compare_at_equal_movement,
    equal_movement_table,
)
from rlvr_jax.analysis.geometry.movement import RunMovement, measure_run
from rlvr_jax.analysis.geometry.overlap import overlap_runs
from rlvr_jax.analysis.geometry.summary import geometry_to_json
from rlvr_jax.analysis.geometry.text import format_geometry
from rlvr_jax.report.tables import align_table
from rlvr_jax.run.fetch import local_run

_USAGE = """\
usage: python -m rlvr_jax.analysis geometry WORKDIR ... [--out=FILE.json]

Compares the parameters of the last RL checkpoint with the parameters before RL, matrix
by matrix. Shows how far they moved, in how many entries, along how many directions, and
how straight over the checkpoints that the run kept. Each number is shown with its value
for equally large noise. Runs that differ only in their seed are one arm. For each pair
of arms it shows how many entries both moved. If runs of one start kept several
checkpoints, it compares them where their weights have moved equally far.
docs/lab/geometry.md explains the tables.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeometryFlags(Flags):
    """The flags of this command."""

    out: str = ""  # a .json file for all measurements


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if runs or checkpoints are missing."""
    return run_command(
        lambda: _run_command(argv), (CheckpointReadError, OSError, ValueError)
    )


def _run_command(argv: Sequence[str]) -> None:
    flags, workdirs = parse_flags(
        argv, GeometryFlags, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    out = check_output_file(Path(flags.out), [".json"]) if flags.out else None
    copies = [str(local_run(each, with_checkpoints=True)) for each in workdirs]
    groups = group_runs([read_training_run(copy) for copy in copies])
    arms = {
        label: [_measure(run.path, seed=run.config["seed"]) for run in runs]
        for label, runs in groups.items()
    }
    overlaps = overlap_runs([run for runs in arms.values() for run in runs])
    moved = compare_at_equal_movement(arms)
    if out is not None:
        found = geometry_to_json(arms, overlaps)
        write_json(out, {**found, "at_equal_movement": [vars(one) for one in moved]})
    print(format_geometry(arms, overlaps))
    if moved:
        print(f"\n{align_table(equal_movement_table(moved))}")


def _measure(workdir: Path, *, seed: int) -> RunMovement:
    progress: list[Progress] = []

    def show(done: int, total: int) -> None:
        if not progress:
            progress.append(Progress(workdir.name, total, every=total // 5 or 1))
        progress[0].update(done, {})

    movement = measure_run(workdir, on_progress=show)
    progress[0].close()
    return dataclasses.replace(movement, seed=seed)
