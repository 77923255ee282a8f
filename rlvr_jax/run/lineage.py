"""The checkpoint of another run that a run starts from: found, checked, recorded."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from job_jax.buckets import is_url, mirror_of, parse_url
from job_jax.command import load_config
from job_jax.config_io import diff
from job_jax.files import checkpoint_steps
from job_jax.flags import UsageError
from job_jax.schema import check
from rlvr_jax.config import Config
from rlvr_jax.models.huggingface import canonical_config
from rlvr_jax.run.fetch import local_checkpoint

CONFIG_FILE = "config.json"
_KEY = "continued_from"  # of config.json
_FLAG = "--continue_from"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lineage:
    """The checkpoint that a run started from; config.json has it as `continued_from`.

    `has_optimizer`: the optimizer's moments were taken, too. `earlier` is the
    checkpoint that the other run had started from, None if it had none.
    """

    workdir: str  # an absolute path, or its address in a bucket
    stage: Literal["sft", "train"]
    step: int
    has_optimizer: bool
    earlier: "Lineage | None" = None

    @property
    def checkpoints(self) -> Path:
        """Returns the directory of the checkpoint's stage."""
        return self.directory / "checkpoints" / self.stage

    @property
    def directory(self) -> Path:
        """Returns the workdir; for a bucket, a local copy of the files needed."""
        mark = "sft" if self.stage == "sft" else str(self.step)
        return _local_workdir(self.workdir, mark)

    def to_json(self) -> dict[str, Any]:
        """Returns the lineage as plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the lineage that `to_json` wrote."""
        earlier = data["earlier"] and cls.from_json(data["earlier"])
        return cls(**{**data, "earlier": earlier})

    def __str__(self) -> str:
        """Returns "runs/a, step 120 of RL, without its optimizer"."""
        stage = {"sft": "SFT", "train": "RL"}[self.stage]
        taken = "with" if self.has_optimizer else "without"
        return f"{self.workdir}, step {self.step} of {stage}, {taken} its optimizer"


def lineage_record(lineage: Lineage | None) -> dict[str, Any]:
    """Returns the entry of config.json for a lineage, {} without one."""
    return {_KEY: lineage.to_json()} if lineage else {}


def read_lineage(metadata: Mapping[str, Any]) -> Lineage | None:
    """Returns the lineage in a config.json, None if its run has none."""
    return Lineage.from_json(metadata[_KEY]) if _KEY in metadata else None


def resolve_lineage(
    config: Config, source: str, *, has_optimizer: bool, workdir: Path | None
) -> tuple[Config, Lineage | None]:
    """Returns the config of a run, and the checkpoint that it starts from, if any.

    `source` is "WORKDIR", "WORKDIR@STEP", "WORKDIR@sft", or "" for none. A run that is
    recorded in `workdir` keeps its recorded start, so `source` may be "". A run that
    starts from a checkpoint has no SFT. Raises UsageError, and ConfigError if the
    policies differ.
    """
    if has_optimizer and not source:
        raise UsageError(f"--continue_optimizer needs {_FLAG}=WORKDIR[@STEP]; add it")
    record = workdir / CONFIG_FILE if workdir else None
    if record and record.is_file():
        lineage = read_lineage(_read_record(record))
        if source:
            _check_is_recorded(lineage, source, has_optimizer, record.parent)
    else:
        lineage = _find_lineage(source, has_optimizer) if source else None
        if lineage:
            _check_same_policy(lineage, config)
    if lineage:
        sft = dataclasses.replace(config.sft, steps=0)
        config = dataclasses.replace(config, sft=sft)
    return config, lineage


def _find_lineage(source: str, has_optimizer: bool) -> Lineage:
    name, mark = _split(source)
    path = _local_workdir(name, mark)
    record = path / CONFIG_FILE
    if not record.is_file():
        raise UsageError(
            f"{_FLAG}={source}: no {record}; give the workdir of a run, alone or "
            "followed by @STEP (a step of RL) or @sft"
        )
    earlier = read_lineage(_read_record(record))
    there = {s: checkpoint_steps(path / "checkpoints" / s) for s in ("train", "sft")}
    stage: Literal["sft", "train"] = "train"
    if mark == "sft" or not (mark or there["train"]):
        stage, mark = "sft", ""
    if not there[stage]:
        raise UsageError(f"{_FLAG}={source}: {name} has no complete checkpoint yet")
    step = int(mark) if mark.isdecimal() else there[stage][-1]
    if (mark and str(step) != mark) or step not in there[stage]:
        steps = ", ".join(map(str, there[stage])) or "none"
        raise UsageError(
            f"{_FLAG}={source}: no checkpoint of RL step {mark} (there are {steps}; "
            "@sft is the checkpoint before RL)"
        )
    if has_optimizer and stage == "sft":
        raise UsageError(
            f"{_FLAG}={source}: SFT and RL have different optimizer moments; "
            "leave out --continue_optimizer"
        )
    return Lineage(
        workdir=name,
        stage=stage,
        step=step,
        has_optimizer=has_optimizer,
        earlier=earlier,
    )


def _split(source: str) -> tuple[str, str]:
    """Returns the workdir, as an absolute path or address, and the text after the @."""
    path, at, mark = source.rpartition("@")
    if not at or Path(source).is_dir():
        path, mark = source, ""
    return parse_url(path) if is_url(path) else str(Path(path).resolve()), mark


def _local_workdir(name: str, mark: str) -> Path:
    if not is_url(name):
        return Path(name)
    if not mark:
        return local_checkpoint(name)
    inside = f"checkpoints/{'sft' if mark == 'sft' else f'train/{mark}'}"
    path = local_checkpoint(f"{name}/{inside}")
    return path.parents[inside.count("/")]


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error})") from error
    return record if isinstance(record, dict) else {}


def _check_is_recorded(
    lineage: Lineage | None, source: str, has_optimizer: bool, workdir: Path
) -> None:
    """Raises UsageError unless the run in `workdir` started from `source`."""
    path, mark = _split(source)
    place = mirror_of(workdir)
    here = place.url if place else str(workdir.resolve())
    if lineage is None:
        raise UsageError(
            f"{_FLAG}={source}: workdir {here} holds a run that began without it; "
            + (
                f"for more steps, set --config.train.steps=N without {_FLAG}"
                if path == here
                else "use another --workdir"
            )
        )
    asked = (path, has_optimizer)
    marks = ("", "sft" if lineage.stage == "sft" else str(lineage.step))
    if asked != (lineage.workdir, lineage.has_optimizer) or mark not in marks:
        raise UsageError(
            f"workdir {here} holds a run that started from {lineage}; use another "
            f"--workdir for {_FLAG}={source}"
            f"{' --continue_optimizer' if has_optimizer else ''}"
        )


def _check_same_policy(lineage: Lineage, config: Config) -> None:
    """Raises ConfigError unless the config's policy has the checkpoint's shapes."""
    source = load_config(lineage.directory / CONFIG_FILE, Config)
    theirs, ours = (
        dataclasses.replace(
            canonical_config(each.model),
            param_dtype=each.model.param_dtype,
        )
        for each in (source, config)
    )
    lines = [f"model.{line}" for line in diff(theirs, ours)]
    kinds = source.tokenizer.kind, config.tokenizer.kind
    if kinds[0] != kinds[1]:
        lines.append(f"tokenizer.kind: {kinds[0]} -> {kinds[1]}")
    elif kinds[0] == "word_level":
        words, other = (len(each.task.vocabulary()) for each in (source, config))
        if source.task.vocabulary() != config.task.vocabulary():
            lines.append(f"the task's vocabulary: {words} -> {other} words")
    check(
        not lines,
        f"cannot start from {lineage.workdir}: its policy is another one than the "
        f"config's ({'; '.join(lines)}); give the config the values of that run",
    )
    ranks = source.train.lora.rank, config.train.lora.rank
    check(
        not (lineage.has_optimizer and any(ranks)),
        f"train.lora.rank: {ranks[0]} -> {ranks[1]}: old adapters are merged, and new "
        "ones have no moments yet; leave out --continue_optimizer",
    )
    moments = (
        source.train.optimizer.moments_dtype,
        config.train.optimizer.moments_dtype,
    )
    check(
        not lineage.has_optimizer or moments[0] == moments[1],
        f"train.optimizer.moments_dtype: {moments[0]} -> {moments[1]}: the moments of "
        f"{lineage.workdir} are {moments[0]}; keep it, or leave out "
        "--continue_optimizer",
    )
