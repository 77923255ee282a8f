"""Copies a run as it was after a step of RL, with a changed config from there on."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax.buckets.fetch import local_files
from job_jax.files import checkpoint_steps, write_json
from job_jax.flags import UsageError
from job_jax.workdir import SUMMARY_FILE, provenance
from rlvr_jax.config import Config
from rlvr_jax.run.cpu_devices import RECORD
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE, lineage_record, read_lineage
from rlvr_jax.run.workdir import (
    MUTABLE_SECTIONS,
    TOKENIZER_FILE,
    reason_against_steps,
)

# A fork may change these settings, because only later steps of RL read them. Not the
# ones in _OF_BEFORE: they shape the state or decide what earlier steps have sampled.
_MAY_CHANGE = ("curriculum", "train.", "dynamic_sampling.")
_OF_BEFORE = (
    "train.lora.",
    "train.staleness:",
    "train.optimizer.moments_dtype:",
    "train.sampling.",
    "train.group_size:",
    "train.batch_size:",
)
_KEPT = (
    "activations",
    "checkpoints",
    "features",
    "judge",
    "metrics.jsonl",
    "probe",
    "rollouts",
    "sae",
    "sae_replicas",
    "tokens",
    *(TOKENIZER_FILE, f"{TOKENIZER_FILE}.sha256"),
)
_NEVER_WRITTEN_AGAIN = ("activations", "checkpoints")
_AFTER_RL = re.compile(r"rollouts/eval_after_|features/(?!step_|sae_fidelity)")
# Numbered files; True: the number counts finished steps, False: it is a step's index.
_NUMBERED = (
    (re.compile(r"checkpoints/train/(?:digests/)?(\d+)/"), True),
    (re.compile(r"rollouts/train_(\d+)\."), False),
    (re.compile(r"tokens/step_(\d+)\."), False),
    (re.compile(r"features/step_(\d+)\."), True),
)
_SUMMARY = ("difficulty", "probe", "tsae")  # written by stages before RL


def find_step(named: str) -> tuple[Path, int]:
    """Returns the run and the step of RL in RUN@STEP, the value of --run.

    Raises UsageError, which names the steps with a checkpoint, if this one has none.
    """
    name, _, mark = named.rpartition("@")
    if not (name and mark.isdecimal()):
        raise UsageError(
            "--run=RUN@STEP is missing; give a workdir and a step of RL"
            if not named
            else f"--run={named}: give WORKDIR@STEP, a step of RL with a checkpoint"
        )
    source, step = local_run(name, with_checkpoints=True), int(mark)
    if not (source / CONFIG_FILE).is_file():
        raise UsageError(
            f"--run={named}: no {source / CONFIG_FILE}; give a run's workdir"
        )
    steps = checkpoint_steps(source / "checkpoints/train")
    if step and step not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise UsageError(
            f"--run={named}: no checkpoint of RL step {step} (there are {there}, and 0 "
            "for before RL); a run keeps only its newest checkpoint.max_to_keep"
        )
    return source, step


def check_changes(
    saved: Config, config: Config, changes: Sequence[str], step: int
) -> None:
    """Raises UsageError if anything before the step depends on the changes."""
    if saved.train.staleness:
        raise UsageError(
            f"train.staleness={saved.train.staleness}: later steps learn from rollouts "
            "sampled before the fork; only a run with staleness=0 can be forked"
        )
    for change in changes:
        if change.startswith(MUTABLE_SECTIONS):
            continue
        if not change.startswith(_MAY_CHANGE) or change.startswith(_OF_BEFORE):
            raise UsageError(
                f"{change}: the run before step {step} depends on it; a fork may "
                "change curriculum, dynamic_sampling and train, but not train's "
                "sampling or the shapes of its state"
            )
    steps = config.train.steps
    if steps <= step:
        raise UsageError(f"train.steps={steps} leaves no step after {step}; raise it")
    if steps != saved.train.steps and (
        reason := reason_against_steps(saved, steps, done=step)
    ):
        raise UsageError(f"train.steps={steps} {reason}")


def kept_steps(config: Config) -> list[int]:
    """Returns the RL steps whose checkpoints a run still has when it ends."""
    last, kept = config.train.steps, config.checkpoint
    steps = [*range(kept.every, last, kept.every), last]
    return steps[-kept.max_to_keep :]


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

    `name` is the parent's name in the fork's record. `target` is complete or does not
    exist. Files that no run writes again are shared as hard links, if the disk can.
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
                **{name: record[name] for name in (RECORD,) if name in record},
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
    """Returns whether a file belongs to no step, or to a step that was done."""
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
    """Drops the lines of later steps from a file of JSON lines, if it exists.

    A last line without a line end is torn, and dropped too.
    """
    if file.is_file():
        lines = file.read_text().split("\n")[:-1]
        kept = [line for line in lines if is_before(json.loads(line))]
        file.write_text("".join(f"{line}\n" for line in kept))


def _before_rl(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns a summary without the entries written after RL."""
    evals, stages = summary.get("eval", {}), summary.get("stages", {})
    kept = {name: {**summary[name]} for name in _SUMMARY if name in summary}
    kept.get("difficulty", {}).pop("posterior_by_initial", None)
    before = evals.get("before")
    # Memorization compares with the problems that RL has used by its end.
    if before is not None and "memorization" not in before:
        kept["eval"] = {"before": before}
    kept["stages"] = {s: stages[s] for s in stages if s not in ("train", "eval")}
    return kept
