"""trackio, from the extra `trackio`: a local database, or a Space on Hugging Face.

Each line of metrics.jsonl is the step of the same number in the tracked run. The
database knows how many steps it has, and a resumed run continues after them. trackio's
own environment variables choose the database's location and a Space, if any.
"""

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from job_jax import DISTRIBUTION
from job_jax.schema import ConfigError
from job_jax.trackers.base import RunResults, TrackedLine, Tracker, table_of

_REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class TrackioTracker(Tracker):
    """Tracks a run in trackio's database under TRACKIO_DIR."""

    _run: Any = None

    @classmethod
    def check_ready(cls, *, offline: bool) -> None:
        """Raises ConfigError without the library, or for a Space without a login."""
        _import_trackio()
        remote = [name for name in _REMOTE if os.environ.get(name)]
        if offline and remote:
            raise ConfigError(
                f"log.tracking.mode=offline, but {remote[0]} is set, so trackio would "
                "upload everything; unset it, or set log.tracking.mode=online"
            )
        if "TRACKIO_SPACE_ID" in remote and not _has_token():
            raise ConfigError(
                "log.trackers: trackio has no login for TRACKIO_SPACE_ID; run `hf auth "
                "login`, set HF_TOKEN, or unset TRACKIO_SPACE_ID to stay on this "
                "machine"
            )

    def open(self) -> int:
        """Opens the tracked run; returns the number of its steps."""
        trackio, run = _import_trackio(), self.run
        # trackio prints messages for people; our standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            self._run = trackio.init(
                run.project,
                name=f"{run.name}-{run.id}",  # it resumes a run by its name
                resume="allow",
                config={**run.config, "continued_from": run.parent},
                embed=False,
            )
        return self._run._next_step

    @property
    def place(self) -> str:
        """Returns the command that shows the run."""
        return f'trackio show --project "{self.run.project}"'

    def log(self, line: TrackedLine) -> None:
        """Logs a line, its alarms, and a table of its completions."""
        trackio = _import_trackio()
        values: dict[str, Any] = line.flat()
        if line.samples:
            values[f"rollouts/{line.stage}"] = _table(trackio, line.samples)
        for alarm in line.alarms:
            self._run.alert("run doctor", alarm, step=line.number)
        self._run.log(values, step=line.number)

    def finish(self, results: RunResults) -> None:
        """Logs the summary's numbers and tables, and the files as an artifact."""
        trackio = _import_trackio()
        tables = {name: _table(trackio, rows) for name, rows in results.tables.items()}
        last = max(results.num_lines - 1, 0)
        self._run.log({**results.numbers, **tables}, step=last)
        artifact = trackio.Artifact(f"run-{self.run.id}-report", type="report")
        for file in results.files:
            artifact.add_file(file)
        self._run.log_artifact(artifact)

    def close(self, *, failed: bool) -> None:
        """Writes the remaining data."""
        self._run.finish()


def _table(trackio: Any, rows: Sequence[Mapping[str, object]]) -> Any:
    columns, data = table_of(rows)
    return trackio.Table(columns=columns, data=data)


def _has_token() -> bool:
    import huggingface_hub  # noqa: PLC0415 (trackio brings it)

    return huggingface_hub.get_token() is not None


def _import_trackio() -> Any:
    """Returns the library. Raises ConfigError if it is not installed."""
    try:
        import trackio  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigError(
            "log.trackers: trackio is not installed; "
            f"pip install '{DISTRIBUTION}[trackio]'"
        ) from error
    return trackio
