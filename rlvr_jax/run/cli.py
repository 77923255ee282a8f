"""The command line of `rlvr_jax.main`."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from job_jax.buckets import open_workdir
from job_jax.command import parse_command
from job_jax.flags import ConfigFlags, one_of
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
    topology: str | None  # the TPU slice or GPUs to plan or compile for
    programs: tuple[str, ...]  # to compile, by name; empty: all
    lineage: "Lineage | None"  # the checkpoint of another run that it starts from


@dataclasses.dataclass(frozen=True, kw_only=True)
class MainFlags(ConfigFlags):
    """The flags of this command."""

    workdir: str = ""  # where the run lives; made if missing
    stage: Annotated[str, one_of(["all", *STAGES, REPORT])] = "all"  # the stage to run
    # print whether the run fits and how long it takes, then prompts, parameter count,
    # mesh, memory, disk and time; start nothing
    dry_run: bool = False
    verbose: bool = False  # with --dry_run: also print the resolved config
    # compile for --topology, print the memory of each chip; start nothing
    compile_only: bool = False
    topology: str = ""  # a TPU slice such as v5e:4x4; with --dry_run also h100:8
    # with --compile_only: only these programs, such as sampler,gradient
    programs: tuple[str, ...] = ()
    # start with the policy of another run: WORKDIR[@STEP] or WORKDIR@sft
    continue_from: str = ""
    # with --continue_from: also take the optimizer's moments
    continue_optimizer: bool = False


def parse(argv: Sequence[str]) -> Invocation:
    """Parses `argv`, the arguments after the program's name.

    Raises UsageError. Prints the help and exits 0 on --help.
    """
    flags, config_path, config = parse_command(
        argv, MainFlags, usage=_USAGE, default=Config(), find_faults=_find_faults
    )
    # Imported only now, because they load slowly: wrong flags are refused at once.
    from rlvr_jax.models.huggingface import resolve_pretrained  # noqa: PLC0415
    from rlvr_jax.run.checkpoint_settings import (  # noqa: PLC0415
        recorded_config,
        settle_config,
    )
    from rlvr_jax.run.fetch import local_run  # noqa: PLC0415
    from rlvr_jax.run.lineage import resolve_lineage  # noqa: PLC0415

    starts_nothing = flags.dry_run or flags.compile_only
    workdir = None
    if flags.workdir:
        find = local_run if starts_nothing else open_workdir
        workdir = find(flags.workdir)
    config, lineage = resolve_lineage(
        resolve_pretrained(config),
        flags.continue_from,
        has_optimizer=flags.continue_optimizer,
        workdir=workdir,
    )
    return Invocation(
        config=settle_config(config, recorded_config(workdir, lineage)),
        config_path=config_path,
        workdir=workdir,
        stage=flags.stage,
        dry_run=flags.dry_run,
        verbose=flags.verbose,
        compile_only=flags.compile_only,
        topology=flags.topology or None,
        programs=flags.programs,
        lineage=lineage,
    )


def _find_faults(flags: MainFlags) -> Iterator[str]:
    """Yields a line for each conflict between flags."""
    has_topology = bool(flags.topology)
    if flags.compile_only and not has_topology:
        yield "--compile_only needs a TPU slice; add one, such as --topology=v5e:4x4"
    if has_topology and flags.compile_only == flags.dry_run:
        yield ("--topology needs exactly one of --compile_only and --dry_run; add one")
    if flags.verbose and not flags.dry_run:
        yield "--verbose needs --dry_run; add it"
    if flags.programs and not flags.compile_only:
        yield "--programs needs --compile_only; add it"
    if not flags.workdir and not (flags.dry_run or has_topology or flags.compile_only):
        yield "--workdir=DIR is missing; name the directory of the run"
