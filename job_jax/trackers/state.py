"""tracking.json, where a workdir records its tracked run."""

import dataclasses
import json
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_jax.files import write_json

TRACKING_FILE = "tracking.json"


@dataclasses.dataclass
class TrackingState:
    """The id of a tracked run, its parent, and how far each tracker is.

    `num_logged` counts, by tracker, the lines of metrics.jsonl handed to it; `finished`
    lists the trackers that have the run's current results.
    """

    path: Path
    id: str
    parent: Mapping[str, Any] | None
    num_logged: dict[str, int]
    finished: list[str]
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @classmethod
    def open(
        cls, workdir: Path, *, parent: Mapping[str, object] | None
    ) -> "TrackingState":
        """Returns the recorded state, or a new run's, which continues `parent`.

        It writes nothing yet.
        """
        path = workdir / TRACKING_FILE
        if path.exists():
            return cls(path=path, **json.loads(path.read_text()))
        return cls(
            path=path,
            id=secrets.token_hex(4),
            parent=parent,
            num_logged={},
            finished=[],
        )

    def mark(self, tracker: str, num_logged: int) -> None:
        """Records how many lines a tracker was handed."""
        with self._lock:
            self.num_logged[tracker] = num_logged
            self._write()

    def mark_finished(self, tracker: str, is_finished: bool) -> None:
        """Records whether a tracker has the results."""
        with self._lock:
            others = [name for name in self.finished if name != tracker]
            self.finished = [*others, tracker] if is_finished else others
            self._write()

    def _write(self) -> None:
        write_json(
            self.path,
            {
                "id": self.id,
                "parent": self.parent,
                "num_logged": self.num_logged,
                "finished": self.finished,
            },
        )


def tracked_id(workdir: Path) -> str | None:
    """Returns the id under which a workdir's run is tracked, or None."""
    path = workdir / TRACKING_FILE
    return json.loads(path.read_text())["id"] if path.exists() else None
