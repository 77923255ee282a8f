"""The files of a run that other jobs do not have: rollouts, tokens, difficulty."""

import dataclasses
import gzip
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import job_jax.workdir
from job_jax.files import (
    check_digest,
    latest_step,
    remove_with_digest,
    write_atomically,
    write_json,
    write_with_digest,
)
from job_jax.processes import is_primary
from job_jax.schema import ConfigSection
from job_jax.workdir import SUMMARY_FILE, WorkdirError
from rlvr_jax.config import Config
from rlvr_jax.types import BANDS, NUM_DECILES, TOKEN_CLASSES, TOKEN_STATS

TOKENIZER_FILE = "tokenizer.model"
DIFFICULTY_FILE = "difficulty.jsonl"
TOKENS_DIR = "tokens"
START = "start"  # in checkpoints/: the policy of another run that this one starts from

# Settings of how a run is executed and watched, not of its results.
MUTABLE_SECTIONS = (
    "mesh.",
    "log.",
    "checkpoint.",
    "verifier.",
    *(f"judge.{name}:" for name in ("url", "api_key_env", "timeout_s")),
    *(f"judge.{name}:" for name in ("max_attempts", "concurrency")),
    *(f"train.reward.{name}:" for name in ("timeout_s", "concurrency")),
)


def rollouts_file(workdir: pathlib.Path, stage: str, step: int) -> pathlib.Path:
    """Returns the file for the completions of one step."""
    return workdir / "rollouts" / f"{stage}_{step:06d}.jsonl.gz"


def saved_rollouts(workdir: pathlib.Path) -> dict[str, list[int]]:
    """Returns the steps whose completions were saved, by stage, in order."""
    steps: dict[str, list[int]] = {}
    for file in sorted((workdir / "rollouts").glob("*_*.jsonl.gz")):
        stage, _, step = file.name.split(".")[0].rpartition("_")
        if step.isdigit():
            steps.setdefault(stage, []).append(int(step))
    return steps


def read_rollouts(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the completions in one file of rollouts/."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_rollouts(path: pathlib.Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Writes completions as a file of rollouts/, whole or not at all."""
    with (
        write_atomically(path) as partial,
        partial.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file,
    ):
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def token_stats_file(workdir: pathlib.Path, step: int) -> pathlib.Path:
    """Returns the file for the token statistics of one training step."""
    return workdir / TOKENS_DIR / f"step_{step:06d}.npz"


class Workdir(job_jax.workdir.Workdir):
    """One run's directory. Only the first of several processes writes."""

    def __init__(self, path: pathlib.Path, config: Config, *, writes: bool = True):
        self._former_steps: int | None = None  # RL steps before, if they change now
        super().__init__(
            path,
            config,
            mutable_sections=MUTABLE_SECTIONS,
            subdirectories=("rollouts", "report", TOKENS_DIR),
            writes=writes,
        )

    def _prepare(self, *args: Any) -> None:
        super()._prepare(*args)
        if not self.has_config:
            remove_with_digest(self.tokenizer_path)
            self.remove_checkpoints(START)

    def fix_other_config(self, changed: Sequence[str]) -> str:
        """Returns what to do; the policy may be continued if it has the same shape."""
        if any(line.startswith(("model", "tokenizer")) for line in changed):
            return super().fix_other_config(changed)
        return (
            f"use another --workdir (with --continue_from={self.name} it starts from "
            "this run's policy), or the config of this run"
        )

    def _check_config(self, saved: ConfigSection, config: ConfigSection) -> None:
        assert isinstance(saved, Config)
        assert isinstance(config, Config)
        steps = saved.train.steps, config.train.steps
        train = dataclasses.replace(saved.train, steps=steps[1])
        longer = dataclasses.replace(saved, train=train)
        if steps[0] == steps[1] or self._find_changes(longer, config):
            super()._check_config(saved, config)
            return
        done = latest_step(self.checkpoints / "train") or 0
        if reason := reason_against_steps(saved, steps[1], done=done):
            raise WorkdirError(
                f"workdir {self.name} holds a run of {done} RL steps, and resuming it "
                f"with train.steps={steps[1]} instead of {steps[0]} {reason}; use "
                f"another --workdir with --continue_from={self.name}"
            )
        self._former_steps = steps[0]

    def record_steps(self, config: Config) -> None:
        """Records a changed number of RL steps, if the config has one.

        This removes the scores and completions after RL: they are of another policy.
        """
        if self._former_steps is None or not is_primary():
            return
        summary, record = self.read_summary(), json.loads(self.config_path.read_text())
        for name in ("after", "gain"):
            summary.get("eval", {}).pop(name, None)
        summary.get("difficulty", {}).pop("posterior_by_initial", None)
        rollouts_file(self.path, "eval_after", 0).unlink(missing_ok=True)
        write_json(self.path / SUMMARY_FILE, summary)
        record["config"]["train"]["steps"] = config.train.steps
        former = [*record.get("former_train_steps", []), self._former_steps]
        write_json(self.config_path, {**record, "former_train_steps": former})
        self._former_steps = None

    @property
    def tokenizer_path(self) -> pathlib.Path:
        """Returns the file of a tokenizer that the run trained."""
        return self.path / TOKENIZER_FILE

    def write_difficulty(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Writes difficulty.jsonl, a line a problem, over an earlier version."""
        if not is_primary():
            return
        with (
            write_with_digest(self.path / DIFFICULTY_FILE) as partial,
            partial.open("w", encoding="utf-8") as file,
        ):
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def read_difficulty(self) -> list[dict[str, Any]]:
        """Returns the lines of difficulty.jsonl; [] before it was written.

        Raises DamagedFileError.
        """
        file = self.path / DIFFICULTY_FILE
        if not file.exists():
            return []
        check_digest(file)
        with file.open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def read_rollouts(self, stage: str, step: int) -> list[dict[str, Any]]:
        """Returns the completions saved at one step; [] if none were."""
        name = rollouts_file(self.path, stage, step)
        return read_rollouts(name) if name.exists() else []

    def write_rollouts(
        self, stage: str, step: int, rows: Iterable[Mapping[str, object]]
    ) -> None:
        """Writes the completions of one step, over an earlier attempt's."""
        if not is_primary():
            return
        write_rollouts(rollouts_file(self.path, stage, step), rows)

    def write_token_stats(self, step: int, token_stats: np.ndarray) -> None:
        """Writes a step's `LossAux.token_stats`, over an earlier attempt's.

        The file names its axes: by_decile [band, tenth, measure], by_class [band,
        class, measure].
        """
        if not is_primary():
            return
        name = token_stats_file(self.path, step)
        with write_atomically(name) as partial, partial.open("wb") as file:
            np.savez_compressed(
                file,
                bands=np.array((*BANDS, "none")),
                classes=np.array(TOKEN_CLASSES),
                measures=np.array(TOKEN_STATS),
                by_decile=token_stats[:, :NUM_DECILES],
                by_class=token_stats[:, NUM_DECILES:],
            )


def reason_against_steps(config: Config, num_steps: int, *, done: int) -> str:
    """Returns why a run of this config that did `done` RL steps cannot do `num_steps`.

    "" if it would end like a run that had `num_steps` from the start.
    """
    train = config.train
    if not done:
        return ""
    if num_steps < done:
        return "would undo steps"
    if train.optimizer.schedule != "constant":
        return (
            "would change the learning rate of the steps already done "
            f"(train.optimizer.schedule={train.optimizer.schedule})"
        )
    if config.curriculum.reads_num_steps:
        return (
            "would change the problems of the steps already done (curriculum.name="
            f"{config.curriculum.tags()['name']})"
        )
    if done > train.steps - train.staleness:
        return (
            f"lacks the rollouts that train.staleness={train.staleness} would have "
            "sampled ahead for the next step"
        )
    return ""
