"""The command that forks a run: a new run that shares its past up to a step of RL.

    python -m rlvr_jax.fork --run=RUN@STEP --workdir=DIR [--config.a.b=v ...]

A step depends only on (config, step) and the state before it. The fork therefore
samples the same problems with the same keys, unless the change affects these. A fork
that changes nothing ends bit for bit like its parent, and in any other fork every
difference comes from the change.
"""

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from job_jax.buckets import is_url
from job_jax.command import load_config, parse_command, run_command
from job_jax.config_io import diff
from job_jax.flags import ConfigFlags, UsageError
from rlvr_jax.config import Config
from rlvr_jax.run.fork import check_changes, find_step, make_fork
from rlvr_jax.run.lineage import CONFIG_FILE

_USAGE = """\
usage: python -m rlvr_jax.fork --run=RUN@STEP --workdir=DIR [--config.a.b=v ...]

RUN@STEP  a run's workdir, and a step of RL whose checkpoint it still has; 0 is the
          state before RL, after all earlier stages
DIR       a new workdir: RUN as it was after that step, with the config changed

Prints the command that continues the fork. To change a setting for ten steps only
(with a constant learning rate): fork with the change and --config.train.steps=STEP+10,
let that run end, then fork it at its last step with the old value.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForkFlags(ConfigFlags):
    """The flags of this command."""

    run: str  # RUN@STEP, the run to fork
    workdir: str  # DIR, a new directory


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 if a file cannot be read or written, 2 on bad usage."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    source, step = _find_source(argv)
    flags, path, config = parse_command(
        [*argv, f"--config={source / CONFIG_FILE}"],
        ForkFlags,
        usage=_USAGE,
        default=Config(),
        find_faults=_find_faults,
    )
    saved = load_config(path, Config)
    changes = diff(saved, config)
    check_changes(saved, config, changes, step)
    target = Path(flags.workdir)
    make_fork(
        source, step, target, config=config, changes=changes, name=_absolute(flags.run)
    )
    print(
        f"{target} is {source} after step {step}; {'; '.join(changes) or 'no change'}"
    )
    given = (f"--config={target / CONFIG_FILE}", f"--workdir={target}")
    print(shlex.join(["python", "-m", "rlvr_jax.main", *given]))


def _find_source(argv: Sequence[str]) -> tuple[Path, int]:
    """Returns the run that --run names, and the step. Raises UsageError."""
    if {"--help", "-h"} & {*argv}:
        return Path(), 0
    if any(arg.startswith("--config=") or arg == "--config" for arg in argv):
        raise UsageError("--run brings the config; change it with --config.a.b=v")
    named = ["", *(arg for arg in argv if arg.startswith("--run="))][-1]
    return find_step(named.removeprefix("--run="))


def _find_faults(flags: ForkFlags) -> Iterator[str]:
    if is_url(flags.workdir):
        yield f"--workdir={flags.workdir} is in a bucket; give a directory"
    elif Path(flags.workdir).exists():
        yield f"--workdir={flags.workdir} exists already; a fork needs a new directory"


def _absolute(run: str) -> str:
    """Returns the workdir in RUN@STEP: an absolute path, or its address in a bucket."""
    name = run.rpartition("@")[0]
    return name if is_url(name) else str(Path(name).resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
