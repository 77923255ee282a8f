"""What `rlvr_jax.main` is asked to do."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from job_jax.command import UsageError, command_flags, read_command
from rlvr_jax.config import Config

STAGES = ("all", "warmup", "difficulty", "tsae", "train", "eval", "report")

_USAGE = """\
usage: python -m rlvr_jax.main --config=FILE --workdir=DIR [--config.a.b=v ...]

Runs the stages of a recipe. Run again, it goes on where it stopped.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Invocation:
    """What the command was asked to do. Written by `parse`, read by `main`."""

    config: Config
    config_path: Path
    workdir: Path | None  # None with dry_run and topology only
    stage: str  # one of STAGES
    dry_run: bool
    topology: str | None  # compile for this TPU slice, and no more


def parse(argv: Sequence[str]) -> Invocation:
    """Returns what `argv`, the arguments after the program's name, ask for.

    Raises UsageError. Prints the help and exits 0 on --help.
    """
    values = command_flags()
    flags.DEFINE_string(
        "workdir", None, "where the run lives; made if missing", flag_values=values
    )
    flags.DEFINE_enum(
        "stage", "all", STAGES, "what to run; all by default", flag_values=values
    )
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "print config, parameter count, mesh and memory; start nothing",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "compile_only",
        False,
        "compile for --topology, print what each chip would hold; start nothing",
        flag_values=values,
    )
    flags.DEFINE_string(
        "topology", None, "a TPU slice, such as v5e:4x4", flag_values=values
    )
    config_path, config = read_command(argv, values, usage=_USAGE, default=Config())
    workdir, dry_run = values.workdir, values.dry_run
    topology = values.topology
    if values.compile_only != (topology is not None):
        raise UsageError(
            "--compile_only and --topology=v5e:4x4 go together; give both, or neither"
        )
    if not workdir and not dry_run and not topology:
        raise UsageError("--workdir=DIR is missing; say where the run shall live")
    return Invocation(
        config=config,
        config_path=config_path,
        workdir=Path(workdir) if workdir else None,
        stage=values.stage,
        dry_run=dry_run,
        topology=topology,
    )
