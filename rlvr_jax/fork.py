"""The command that forks a run: the same up to a step of RL, another from there on.

    python -m rlvr_jax.fork --run=RUN@STEP --workdir=DIR [--config.a.b=v ...]

What a step computes is a function of (config, step) and the state before it, so that
the fork asks the same problems with the same keys, unless the change is about these. A
fork that changes nothing ends with the parent's bits; of any other, every difference is
the work of the change.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from job_jax.buckets import is_url
from job_jax.command import (
    UsageError,
    define_config_flags,
    load_config,
    parse_command,
    run_command,
)
from job_jax.config_io import diff, to_json
from job_jax.files import checkpoint_steps, write_json
from job_jax.trackers.state import TRACKING_FILE
from job_jax.workdir import SUMMARY_FILE
from rlvr_jax.config import Config
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE
from rlvr_jax.run.workdir import DIFFICULTY_FILE, MUTABLE_SECTIONS

_USAGE = """\
usage: python -m rlvr_jax.fork --run=RUN@STEP --workdir=DIR [--config.a.b=v ...]

RUN@STEP  the workdir of a run, and a step of RL of which it keeps a checkpoint
DIR       a new workdir: RUN as it was after that step, with the config changed

Prints the command by which the fork goes on. A change for ten steps: fork with it and
with --config.train.steps=STEP+10, let that end, and fork it at its last step with the
old values.
"""
# What a step of RL reads of the config, but not what its state is made of.
_MAY_CHANGE = ("curriculum", "train.", "dynamic_sampling.")
_OF_THE_STATE = ("train.lora.", "train.staleness:", "train.optimizer.moments_dtype:")
_LEFT_BEHIND = (
    *(".lock", CONFIG_FILE, SUMMARY_FILE, DIFFICULTY_FILE, f"{DIFFICULTY_FILE}.sha256"),
    *("report", "tensorboard", TRACKING_FILE),
)
_AFTER_RL = re.compile(r"rollouts/eval_after_|features/(?!step_|sae_fidelity)")
# Files that are numbered, and whether the number counts the steps that were done.
_NUMBERED = (
    (re.compile(r"checkpoints/train/(?:digests/)?(\d+)/"), True),
    (re.compile(r"rollouts/train_(\d+)\."), False),
    (re.compile(r"tokens/step_(\d+)\."), False),
    (re.compile(r"features/step_(\d+)\."), True),
)
_SUMMARY = ("difficulty", "probe", "tsae")  # what stages before RL have told


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
    changes = diff(load_config(path, Config), config)
    _check_changes(changes, config, step)
    target = Path(values.workdir)
    make_fork(source, step, target, config, changes)
    print(
        f"{target} is {source} after step {step}; {'; '.join(changes) or 'no change'}"
    )
    print(f"python -m rlvr_jax.main --config={target / CONFIG_FILE} --workdir={target}")


def _find_source(argv: Sequence[str]) -> tuple[Path, int]:
    """Returns the run that is named, and the step. Raises UsageError."""
    if {"--help", "-h"} & {*argv}:
        return Path(), 0
    if any(arg.startswith("--config=") for arg in argv):
        raise UsageError("--config is that of --run; change it with --config.a.b=v")
    named = next((arg for arg in argv if arg.startswith("--run=")), "")
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
    if step not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise UsageError(
            f"{named}: no checkpoint of RL step {step} (there are {there}); a run "
            "keeps its newest checkpoint.max_to_keep"
        )
    return source, step


def _find_faults(values: flags.FlagValues) -> Iterator[str]:
    if not values.workdir:
        yield "--workdir=DIR is missing; say where the fork shall live"
    elif is_url(values.workdir):
        yield f"--workdir={values.workdir}: a fork is made in a directory, not a bucket"
    elif Path(values.workdir).exists():
        yield f"--workdir={values.workdir} is there already; a fork needs a new one"


def _check_changes(changes: Sequence[str], config: Config, step: int) -> None:
    """Raises UsageError where the state of that step is not one of such a config."""
    for change in changes:
        if change.startswith(MUTABLE_SECTIONS):
            continue
        if not change.startswith(_MAY_CHANGE) or change.startswith(_OF_THE_STATE):
            raise UsageError(
                f"{change}: what was before step {step} depends on it; a fork may "
                "change the curriculum, dynamic_sampling, and of train what is not "
                "part of its state"
            )
    if config.train.steps <= step:
        raise UsageError(f"train.steps={config.train.steps}: none is left after {step}")


def make_fork(
    source: Path, step: int, target: Path, config: Config, changes: Sequence[str]
) -> None:
    """Makes `target` the run in `source` as it was after a step, with this config.

    `target` is there whole or not at all. Files of checkpoints are shared, as hard
    links, where the disk can.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for path in _files_of(source, step):
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            _copy(source / path, made / path, may_share=path.parts[0] == "checkpoints")
        _cut_lines(made / "features/sae_fidelity.jsonl", lambda r: r["step"] <= step)
        _cut_lines(
            made / "metrics.jsonl", lambda r: r["stage"] != "train" or r["step"] < step
        )
        summary = json.loads((source / SUMMARY_FILE).read_text())
        write_json(made / SUMMARY_FILE, _before_rl(summary))
        record = json.loads((source / CONFIG_FILE).read_text())
        origin = {
            "workdir": str(source.resolve()),
            "step": step,
            "changes": [*changes],
            "earlier": record.get("forked_from"),
        }
        write_json(
            made / CONFIG_FILE,
            {**record, "config": to_json(config), "forked_from": origin},
        )
        made.chmod(source.stat().st_mode)
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _files_of(source: Path, step: int) -> Iterator[Path]:
    """Yields the files that the run had after the step, relative to its workdir."""
    for folder, _, names in os.walk(source):
        inside = Path(folder).relative_to(source)
        for path in (inside / name for name in names):
            if path.parts[0] in _LEFT_BEHIND or _AFTER_RL.match(str(path)):
                continue
            if all(_is_before(str(path), kind, step) for kind in _NUMBERED):
                yield path


def _is_before(path: str, kind: tuple[re.Pattern[str], bool], step: int) -> bool:
    """Returns whether a file is none of this kind, or of a step that was done."""
    pattern, counts_done = kind
    found = pattern.match(path)
    return found is None or int(found[1]) < step + counts_done


def _copy(source: Path, target: Path, *, may_share: bool) -> None:
    if may_share:
        try:
            os.link(source, target)
            return
        except OSError:  # another disk, or one without links
            pass
    shutil.copyfile(source, target)


def _cut_lines(file: Path, is_before: Callable[[Mapping[str, Any]], bool]) -> None:
    """Drops the lines of later steps of a file of JSON lines, if it is there."""
    if file.is_file():
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if is_before(json.loads(line))))


def _before_rl(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns a summary without what is told once RL has ended."""
    evals, stages = summary.get("eval", {}), summary.get("stages", {})
    return {
        **{name: summary[name] for name in _SUMMARY if name in summary},
        "eval": {name: evals[name] for name in ("before",) if name in evals},
        "stages": {s: stages[s] for s in stages if s not in ("train", "eval")},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
