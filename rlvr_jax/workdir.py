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

_LIBRARIES = ("rlvr_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")

# Sections that say how a run is executed and watched, not what it computes.
_MAY_CHANGE = ("mesh.", "log.", "checkpoint.", "verifier.")


class WorkdirError(ConfigError):
    """A workdir that cannot be used. The message names it and the mend."""


class Workdir:
    """One run's directory. Opening it writes config.json or checks it."""

    def __init__(self, path: pathlib.Path, config: Config, *, device: str):
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
        record = path / "config.json"
        if record.exists():
            _refuse_other_config(path, config)
        else:
            _write_json(record, _provenance(config, device))

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
        path = self.path / "summary.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def update_summary(self, values: Mapping[str, Any]) -> None:
        """Writes summary.json with these values merged in, section by section."""
        _write_json(self.path / "summary.json", _merged(self.read_summary(), values))


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `old` with `new` on top; sections found in both are merged likewise."""
    both = dict(old)
    for name, value in new.items():
        inner = both.get(name)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            value = _merged(inner, value)
        both[name] = value
    return both


def _refuse_other_config(path: pathlib.Path, config: Config) -> None:
    saved = from_json(json.loads((path / "config.json").read_text())["config"])
    changed = [
        line for line in diff(saved, config) if not line.startswith(_MAY_CHANGE)
    ]
    if changed:
        raise WorkdirError(
            f"workdir {path} holds a run of another config ({'; '.join(changed)}); "
            "use another --workdir, or the config it was made with"
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
