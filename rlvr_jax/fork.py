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
from job_jax.buckets.fetch import local_files
from job_jax.command import (
    UsageError,
    define_config_flags,
    load_config,
    parse_command,
    run_command,
)
from job_jax.config_io import diff
from job_jax.files import checkpoint_steps, write_json
from job_jax.workdir import SUMMARY_FILE, provenance
from rlvr_jax.config import Config
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE, lineage_record, read_lineage
from rlvr_jax.run.workdir import (
    MUTABLE_SECTIONS,
    TOKENIZER_FILE,
    reason_against_steps,
)

_USAGE = """\
usage: python -m rlvr_jax.fork --run=RUN@STEP --workdir=DIR [--config.a.b=v ...]

RUN@STEP  the workdir of a run, and a step of RL of which it keeps a checkpoint
DIR       a new workdir: RUN as it was after that step, with the config changed

Prints the command by which the fork goes on. A change for ten steps, where the
learning rate is constant: fork with it and with --config.train.steps=STEP+10, let that
end, and fork it at its last step with the old values.
"""
# What a step of RL reads of the config, but for what its state and the stages before it
# are made of: sampling and sizes decide which problems are asked, and what is known.
_MAY_CHANGE = ("curriculum", "train.", "dynamic_sampling.")
_OF_BEFORE = (
    *("train.lora.", "train.staleness:", "train.optimizer.moments_dtype:"),
    *("train.sampling.", "train.group_size:", "train.batch_size:"),
)
_KEPT = (
    *("activations", "checkpoints", "features", "judge", "metrics.jsonl", "probe"),
    *("rollouts", "sae", "sae_replicas", "tokens"),
    *(TOKENIZER_FILE, f"{TOKENIZER_FILE}.sha256"),
)
_NEVER_WRITTEN_AGAIN = ("activations", "checkpoints")
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
    saved = load_config(path, Config)
    changes = diff(saved, config)
    _check_changes(saved, config, changes, step)
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


def _check_changes(
    saved: Config, config: Config, changes: Sequence[str], step: int
) -> None:
    """Raises UsageError where what was before the step depends on what changes."""
    if saved.train.staleness:
        raise UsageError(
            f"train.staleness={saved.train.staleness}: what later steps learn from was "
            "drawn before the step; a run without can be forked"
        )
    for change in changes:
        if change.startswith(MUTABLE_SECTIONS):
            continue
        if not change.startswith(_MAY_CHANGE) or change.startswith(_OF_BEFORE):
            raise UsageError(
                f"{change}: what was before step {step} depends on it; a fork may "
                "change the curriculum, dynamic_sampling, and of train all but its "
                "state's shape and what is sampled"
            )
    steps = config.train.steps
    if steps <= step:
        raise UsageError(f"train.steps={steps}: none is left after {step}")
    if steps != saved.train.steps and (
        reason := reason_against_steps(saved, steps, done=step)
    ):
        raise UsageError(f"train.steps={steps} {reason}")


def _absolute(run: str) -> str:
    """Returns the workdir of RUN@STEP, absolute or the address of one in a bucket."""
    name = run.rpartition("@")[0]
    return name if is_url(name) else str(Path(name).resolve())


def make_fork(
    source: Path,
    step: int,
    target: Path,
    *,
    config: Config,
    changes: Sequence[str],
    name: str,
) -> None:
    """Makes `target` the run in `source` as it was after a step, with this config.

    `name` is what the fork calls the parent. `target` is there whole or not at all.
    Files that no run writes again are shared, as hard links, where the disk can.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for path in _files_of(source, step):
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            may_share = path.split("/")[0] in _NEVER_WRITTEN_AGAIN
            _copy(source / path, made / path, may_share=may_share)
        _cut_lines(made / "features/sae_fidelity.jsonl", lambda r: r["step"] <= step)
        _cut_lines(
            made / "metrics.jsonl", lambda r: r["stage"] != "train" or r["step"] < step
        )
        summary = json.loads((source / SUMMARY_FILE).read_text())
        write_json(made / SUMMARY_FILE, _before_rl(summary))
        record = json.loads((source / CONFIG_FILE).read_text())
        write_json(
            made / CONFIG_FILE,
            {
                **provenance(config, device=record["device"]),
                **lineage_record(read_lineage(record)),
                "forked_from": {
                    "workdir": name,
                    "step": step,
                    "changes": [*changes],
                    "git_commit": record["git_commit"],
                    "earlier": record.get("forked_from"),
                },
            },
        )
        made.chmod(source.stat().st_mode)
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _files_of(source: Path, step: int) -> Iterator[str]:
    """Yields the files that the run had after the step, by path in its workdir."""
    for path in local_files(source):
        is_kept = path.split("/")[0] in _KEPT and not _AFTER_RL.match(path)
        if is_kept and _is_of_done_steps(path, step):
            yield path


def _is_of_done_steps(path: str, step: int) -> bool:
    """Returns whether a file is not of a step, or of one that had been done."""
    for pattern, counts_done in _NUMBERED:
        if number := pattern.match(path):
            return int(number[1]) < step + counts_done
    return True


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
    kept = {name: {**summary[name]} for name in _SUMMARY if name in summary}
    kept.get("difficulty", {}).pop("posterior_by_initial", None)
    before = evals.get("before")
    # Memorization is of the problems that RL has asked by its end.
    if before is not None and "memorization" not in before:
        kept["eval"] = {"before": before}
    kept["stages"] = {s: stages[s] for s in stages if s not in ("train", "eval")}
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
