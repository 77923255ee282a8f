"""The files of a run: config.json, rollouts/, summary.json."""

import gzip
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from rlvr_jax.config import Config, ConfigError
from rlvr_jax.config_io import diff, from_json, to_json

SUMMARY_FILE = "summary.json"
TOKENIZER_FILE = "tokenizer.model"

_LIBRARIES = ("rlvr_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")

# Sections that say how a run is executed and watched, not what it computes.
_MAY_CHANGE = ("mesh.", "log.", "checkpoint.", "verifier.")


class WorkdirError(ConfigError):
    """A workdir that cannot be used. The message names it and the mend."""


class Workdir:
    """One run's directory.

    Opening it refuses a directory that cannot be written or that holds a run of
    another config. A run is recorded in it once everything else has been checked, so
    that a refused one leaves no trace that the mended one would trip over.
    """

    def __init__(self, path: pathlib.Path, config: Config):
        self.path = path
        try:
            (path / "rollouts").mkdir(parents=True, exist_ok=True)
            (path / "report").mkdir(exist_ok=True)
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise WorkdirError(
                f"workdir {path} cannot be written ({error.strerror}); choose another "
                "with --workdir"
            ) from error
        if self._record.exists():
            _refuse_other_config(self._record, config)
        else:
            self.tokenizer.unlink(missing_ok=True)

    def record(self, config: Config, *, device: str) -> None:
        """Writes config.json, unless an earlier attempt has."""
        if not self._record.exists():
            _write_json(self._record, _provenance(config, device))

    @property
    def _record(self) -> pathlib.Path:
        return self.path / "config.json"

    @property
    def tokenizer(self) -> pathlib.Path:
        """Returns where a learnt tokenizer is kept."""
        return self.path / TOKENIZER_FILE

    @property
    def checkpoints(self) -> pathlib.Path:
        """Returns the directory that holds one directory of checkpoints a stage."""
        return self.path / "checkpoints"

    def write_rollouts(
        self, stage: str, step: int, rows: Iterable[Mapping[str, Any]]
    ) -> None:
        """Writes the completions of one step, over those of an earlier attempt."""
        name = self.path / "rollouts" / f"{stage}_{step:06d}.jsonl.gz"
        partial = name.with_suffix(".partial")
        with (
            partial.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file,
        ):
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        partial.replace(name)

    def read_summary(self) -> dict[str, Any]:
        """Returns summary.json as it stands, {} before the first stage has ended."""
        path = self.path / SUMMARY_FILE
        return json.loads(path.read_text()) if path.exists() else {}

    def update_summary(self, values: Mapping[str, Any]) -> None:
        """Writes summary.json with these values merged in, section by section."""
        _write_json(self.path / SUMMARY_FILE, _merged(self.read_summary(), values))


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `old` with `new` on top; sections found in both are merged likewise."""
    both = {**old, **new}
    for name in old.keys() & new.keys():
        if isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            both[name] = _merged(old[name], new[name])
    return both


def _refuse_other_config(record: pathlib.Path, config: Config) -> None:
    try:
        saved = from_json(json.loads(record.read_text())["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise WorkdirError(
            f"{record} is not the record of a run of this version ({error}); use "
            "another --workdir"
        ) from error
    changed = [line for line in diff(saved, config) if not line.startswith(_MAY_CHANGE)]
    if changed:
        raise WorkdirError(
            f"workdir {record.parent} holds a run of another config "
            f"({'; '.join(changed)}); use another --workdir, or the config it was made "
            "with"
        )


def _provenance(config: Config, device: str) -> dict[str, Any]:
    return {
        "config": to_json(config),
        "seed": config.seed,
        "device": device,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _LIBRARIES},
        },
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    """Returns the commit of the source tree, None where it is not under git."""
    source = pathlib.Path(__file__).parent
    found = subprocess.run(
        ["git", "-C", str(source), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or None


def _write_json(path: pathlib.Path, value: Any) -> None:
    """Replaces the file in one step: a reader sees the old text or the new."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(partial, path)
