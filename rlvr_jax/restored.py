"""A policy from one of its checkpoints, for commands outside a run."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from job_jax.checkpoint import latest_step
from job_jax.command import UsageError
from job_jax.mesh import start_jax
from rlvr_jax.adapters import saved_params
from rlvr_jax.config import Config
from rlvr_jax.run import Run, open_run
from rlvr_jax.tasks import Stage
from rlvr_jax.workdir import TOKENIZER_FILE


class Restored(NamedTuple):
    """What a checkpoint gives back."""

    run: Run
    params: Any
    step: int


@contextlib.contextmanager
def restored_policy(config: Config, path: Path, *, stage: Stage) -> Iterator[Restored]:
    """Yields the run, its problems those of `stage`, with a checkpoint's parameters.

    `path` is read as `find_checkpoint` says. Starts JAX; the mesh is set and the judge
    is open meanwhile. Raises UsageError.
    """
    directory, step = find_checkpoint(path)
    tokenizer = workdir_of(path) / TOKENIZER_FILE
    if config.tokenizer.learnt and not tokenizer.is_file():
        raise UsageError(
            f"no {tokenizer}: the checkpoint's tokenizer lies in its workdir"
        )
    start_jax(config.mesh)
    run = open_run(config, tokenizer, stages=(stage,))
    for line in run.left_out():
        print(line, file=sys.stderr)
    with jax.set_mesh(run.mesh), run.judge:
        yield Restored(run, saved_params(run, directory, step), step)


def workdir_of(path: Path) -> Path:
    """Returns the workdir of a checkpoint, `path` as above. Raises UsageError."""
    return find_checkpoint(path)[0].resolve().parents[1]


def find_checkpoint(path: Path) -> tuple[Path, int]:
    """Returns the directory of a stage's checkpoints, and the step that is meant.

    Of WORKDIR/checkpoints/STAGE/STEP that step; of WORKDIR/checkpoints/STAGE the
    newest; of WORKDIR the newest of train, else of warmup. Raises UsageError.
    """
    if path.name.isdigit() and (path / "state").is_dir():
        return path.parent, int(path.name)
    for inner in (".", "checkpoints/train", "checkpoints/warmup"):
        if (step := latest_step(path / inner)) is not None:
            return path / inner, step
    raise UsageError(
        f"no complete checkpoint in {path}; give WORKDIR/checkpoints/STAGE, or one of "
        "the steps in it"
    )
