"""A run's files beside every job's: rollouts/, tokens/, difficulty.jsonl, tokenizer."""

import gzip
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import job_jax.workdir
from job_jax.processes import is_primary
from rlvr_jax.config import Config
from rlvr_jax.types import BANDS, PLACES, TOKEN_CLASSES, TOKEN_MEASURES

TOKENIZER_FILE = "tokenizer.model"
DIFFICULTY_FILE = "difficulty.jsonl"
TOKENS_DIR = "tokens"

# Sections that say how a run is executed and watched, not what it computes.
MAY_CHANGE = ("mesh.", "log.", "checkpoint.", "verifier.")


def rollouts_file(workdir: pathlib.Path, stage: str, step: int) -> pathlib.Path:
    """Returns where the completions of one step are saved."""
    return workdir / "rollouts" / f"{stage}_{step:06d}.jsonl.gz"


def read_rollouts(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the completions in one file of rollouts/."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def token_sums_file(workdir: pathlib.Path, step: int) -> pathlib.Path:
    """Returns where the sums over tokens of one training step are saved."""
    return workdir / TOKENS_DIR / f"step_{step:06d}.npz"


class Workdir(job_jax.workdir.Workdir):
    """One run's directory. Of several processes the first one writes."""

    def __init__(self, path: pathlib.Path, config: Config):
        super().__init__(
            path,
            config,
            may_change=MAY_CHANGE,
            folders=("rollouts", "report", TOKENS_DIR),
        )

    def _open(self, *args: Any) -> None:
        super()._open(*args)
        if not self.recorded:
            self.tokenizer.unlink(missing_ok=True)

    @property
    def tokenizer(self) -> pathlib.Path:
        """Returns where a learnt tokenizer is kept."""
        return self.path / TOKENIZER_FILE

    def write_difficulty(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes difficulty.jsonl, a line a problem, over what stood there."""
        if not is_primary():
            return
        partial = self.path / f"{DIFFICULTY_FILE}.partial"
        with partial.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        partial.replace(self.path / DIFFICULTY_FILE)

    def read_rollouts(self, stage: str, step: int) -> list[dict[str, Any]]:
        """Returns the completions saved at one step; none where none were."""
        name = rollouts_file(self.path, stage, step)
        return read_rollouts(name) if name.exists() else []

    def write_rollouts(
        self, stage: str, step: int, rows: Iterable[Mapping[str, Any]]
    ) -> None:
        """Writes the completions of one step, over those of an earlier attempt."""
        if not is_primary():
            return
        name = rollouts_file(self.path, stage, step)
        partial = name.with_suffix(".partial")
        with (
            partial.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file,
        ):
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        partial.replace(name)

    def write_token_sums(self, step: int, by_cell: np.ndarray) -> None:
        """Writes a step's `LossParts.by_cell`, over that of an earlier attempt.

        A file of named axes: by_place [band, tenth, measure], by_class [band, class,
        measure].
        """
        if not is_primary():
            return
        name = token_sums_file(self.path, step)
        partial = name.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez_compressed(
                file,
                bands=np.array((*BANDS, "none")),
                classes=np.array(TOKEN_CLASSES),
                measures=np.array(TOKEN_MEASURES),
                by_place=by_cell[:, :PLACES],
                by_class=by_cell[:, PLACES:],
            )
        partial.replace(name)
