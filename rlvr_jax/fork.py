"""The command that forks a run: the same up to a step of RL, another from there on.

    python -m rlvr_jax.fork --run=RUN@STEP --workdir=DIR [--config.a.b=v ...]

What a step computes is a function of (config, step) and the state before it, so that
the fork asks the same problems with the same keys, unless the change is about these. A
fork that changes nothing ends with the parent's bits; of any other, every difference is
the work of the change.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import flags

from job_jax.buckets import is_url
from job_jax.command import (
    UsageError,
    define_config_flags,
    load_config,
    parse_command,
    run_command,
)
from job_jax.config_io import diff
from job_jax.files import checkpoint_steps
from rlvr_jax.config import Config
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.fork import check_changes, make_fork
from rlvr_jax.run.lineage import CONFIG_FILE

_USAGE = """\
usage: python -m rlvr_jax.fork --run=RUN@STEP --workdir=DIR [--config.a.b=v ...]

RUN@STEP  the workdir of a run, and a step of RL of which it keeps a checkpoint; 0 is
          before RL: all that the stages before it have done
DIR       a new workdir: RUN as it was after that step, with the config changed

Prints the command by which the fork goes on. A change for ten steps, where the
learning rate is constant: fork with it and with --config.train.steps=STEP+10, let that
end, and fork it at its last step with the old values.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 where files cannot be read or written, 2 on bad usage."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    values = define_config_flags()
    flags.DEFINE_string("run", None, "RUN@STEP, what to fork", flag_values=values)
    flags.DEFINE_string("workdir", None, "DIR, a new one", flag_values=values)
    source, step = _find_source(argv)
    path, config = parse_command(
        [*argv, f"--config={source / CONFIG_FILE}"],
        values,
        usage=_USAGE,
        default=Config(),
        find_faults=_find_faults,
    )
    saved = load_config(path, Config)
    changes = diff(saved, config)
    check_changes(saved, config, changes, step)
    target = Path(values.workdir)
    make_fork(
        source, step, target, config=config, changes=changes, name=_absolute(values.run)
    )
    print(
        f"{target} is {source} after step {step}; {'; '.join(changes) or 'no change'}"
    )
    print(f"python -m rlvr_jax.main --config={target / CONFIG_FILE} --workdir={target}")


def _find_source(argv: Sequence[str]) -> tuple[Path, int]:
    """Returns the run that is named, and the step. Raises UsageError."""
    if {"--help", "-h"} & {*argv}:
        return Path(), 0
    if any(arg.startswith("--config=") or arg == "--config" for arg in argv):
        raise UsageError("--config is that of --run; change it with --config.a.b=v")
    named = ["", *(arg for arg in argv if arg.startswith("--run="))][-1]
    name, _, mark = named.removeprefix("--run=").rpartition("@")
    if not (name and mark.isdecimal()):
        raise UsageError(
            "--run=RUN@STEP is missing: a workdir and a step of RL"
            if not named
            else f"{named}: give WORKDIR@STEP, a step of RL with a checkpoint"
        )
    source, step = local_run(name, with_checkpoints=True), int(mark)
    if not (source / CONFIG_FILE).is_file():
        raise UsageError(f"{named}: no {source / CONFIG_FILE}; give a run's workdir")
    steps = checkpoint_steps(source / "checkpoints/train")
    if step and step not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise UsageError(
            f"{named}: no checkpoint of RL step {step} (there are {there}, and 0, "
            "before RL); a run keeps its newest checkpoint.max_to_keep"
        )
    return source, step


def _find_faults(values: flags.FlagValues) -> Iterator[str]:
    if not values.workdir:
        yield "--workdir=DIR is missing; say where the fork shall live"
    elif is_url(values.workdir):
        yield f"--workdir={values.workdir}: a fork is made in a directory, not a bucket"
    elif Path(values.workdir).exists():
        yield f"--workdir={values.workdir} is there already; a fork needs a new one"


def _absolute(run: str) -> str:
    """Returns the workdir of RUN@STEP, absolute or the address of one in a bucket."""
    name = run.rpartition("@")[0]
    return name if is_url(name) else str(Path(name).resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
