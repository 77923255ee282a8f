"""The command line of `rlvr_jax.main`."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from job_jax.buckets import open_workdir
from job_jax.command import define_config_flags, parse_command
from rlvr_jax.config import Config
from rlvr_jax.run.stage_table import REPORT, STAGES

if TYPE_CHECKING:
    from rlvr_jax.run.lineage import Lineage

_USAGE = """\
usage: python -m rlvr_jax.main --config=FILE --workdir=DIR [--config.a.b=v ...]

Runs the stages of a recipe. If it was stopped, run it again to resume.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Invocation:
    """A parsed command line. Written by `parse`, read by `main`."""

    config: Config
    config_path: Path
    workdir: Path | None  # None with dry_run and topology only
    stage: str  # "all", or the name of a stage
    dry_run: bool
    verbose: bool  # with dry_run: also the resolved config
    compile_only: bool
    topology: str | None  # the TPU slice to plan or compile for
    programs: tuple[str, ...]  # to compile, by name; empty: all
    lineage: "Lineage | None"  # the checkpoint of another run that it starts from


def parse(argv: Sequence[str]) -> Invocation:
    """Parses `argv`, the arguments after the program's name.

    Raises UsageError. Prints the help and exits 0 on --help.
    """
    values = _define_flags()
    config_path, config = parse_command(
        argv, values, usage=_USAGE, default=Config(), find_faults=_find_faults
    )
    # Imported only now, because they load slowly: wrong flags are refused at once.
    from rlvr_jax.models.huggingface import resolve_pretrained  # noqa: PLC0415
    from rlvr_jax.run.checkpoint_settings import (  # noqa: PLC0415
        recorded_config,
        settle_config,
    )
    from rlvr_jax.run.fetch import local_run  # noqa: PLC0415
    from rlvr_jax.run.lineage import resolve_lineage  # noqa: PLC0415

    starts_nothing = values.dry_run or values.compile_only
    workdir = None
    if values.workdir:
        find = local_run if starts_nothing else open_workdir
        workdir = find(values.workdir)
    config, lineage = resolve_lineage(
        resolve_pretrained(config),
        values.continue_from,
        has_optimizer=values.continue_optimizer,
        workdir=workdir,
    )
    return Invocation(
        config=settle_config(config, recorded_config(workdir, lineage)),
        config_path=config_path,
        workdir=workdir,
        stage=values.stage,
        dry_run=values.dry_run,
        verbose=values.verbose,
        compile_only=values.compile_only,
        topology=values.topology,
        programs=tuple(values.programs),
        lineage=lineage,
    )


def _define_flags() -> flags.FlagValues:
    """Returns the command's flags, with the config's flags, before parsing."""
    values = define_config_flags()
    flags.DEFINE_string(
        "workdir", None, "where the run lives; made if missing", flag_values=values
    )
    flags.DEFINE_enum(
        "stage",
        "all",
        ["all", *STAGES, REPORT],
        "the stage to run; all by default",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "print whether the run fits and how long it takes, then prompts, parameter "
        "count, mesh, memory, disk and time; start nothing",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "verbose",
        False,
        "with --dry_run: also print the resolved config",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "compile_only",
        False,
        "compile for --topology, print the memory of each chip; start nothing",
        flag_values=values,
    )
    flags.DEFINE_string(
        "topology", None, "a TPU slice, such as v5e:4x4", flag_values=values
    )
    flags.DEFINE_list(
        "programs",
        [],
        "with --compile_only: only these programs, such as sampler,gradient",
        flag_values=values,
    )
    flags.DEFINE_string(
        "continue_from",
        "",
        "start with the policy of another run: WORKDIR[@STEP] or WORKDIR@sft",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "continue_optimizer",
        False,
        "with --continue_from: also take the optimizer's moments",
        flag_values=values,
    )
    return values


def _find_faults(values: flags.FlagValues) -> Iterator[str]:
    """Yields a line for each conflict between flags."""
    has_topology = values.topology is not None
    if values.compile_only and not has_topology:
        yield "--compile_only needs a TPU slice; add one, such as --topology=v5e:4x4"
    if has_topology and values.compile_only == values.dry_run:
        yield ("--topology needs exactly one of --compile_only and --dry_run; add one")
    if values.verbose and not values.dry_run:
        yield "--verbose needs --dry_run; add it"
    if values.programs and not values.compile_only:
        yield "--programs needs --compile_only; add it"
    if not values.workdir and not (
        values.dry_run or has_topology or values.compile_only
    ):
        yield "--workdir=DIR is missing; name the directory of the run"
