"""results.json: the state of every part, rewritten completely when a part ends."""

import json
import pathlib
from typing import Any

from job_jax.files import write_atomically

# Parts with these statuses do not run again.
_FINAL = ("done", "failed")


class Results:
    """The parts' records by name, in the order in which they were first saved.

    A record has a `status`: done (with `result`), failed or skipped (with `reason`), or
    interrupted. It also has the `seconds` that the part took.
    """

    def __init__(self, directory: pathlib.Path):
        self._path = directory / "results.json"
        self._parts: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self._parts = json.loads(self._path.read_text())["parts"]

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Returns all records."""
        return self._parts

    def is_final(self, name: str) -> bool:
        """Returns whether a part was measured, or failed by itself."""
        return self._parts.get(name, {}).get("status") in _FINAL

    def forget_failures(self) -> None:
        """Drops the failed parts, so that they run again."""
        kept = {k: v for k, v in self._parts.items() if v["status"] != "failed"}
        self._parts = kept
        self._write()

    def save(self, name: str, record: dict[str, Any]) -> None:
        """Replaces a part's record; it is on disk when this returns."""
        self._parts[name] = record
        self._write()

    def _write(self) -> None:
        with write_atomically(self._path) as partial:
            partial.write_text(json.dumps({"parts": self._parts}, indent=1) + "\n")
