"""The trackers of a run: opened before its first stage, closed after its report."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, Self

from job_jax.command import StoppedError
from job_jax.config_io import to_json
from job_jax.metrics_file import METRICS_FILE, count_lines, read_lines
from job_jax.processes import is_primary
from job_jax.trackers.background import BackgroundTracker
from job_jax.trackers.base import (
    RunResults,
    TrackedLine,
    TrackedRun,
    flatten_numbers,
    tracker_class,
)
from job_jax.trackers.state import TrackingState, tracked_id
from job_jax.workdir import SUMMARY_FILE
from rlvr_jax.config import Config
from rlvr_jax.metrics.doctor import DoctorState, alarm_limits, check_step
from rlvr_jax.report.page import REPORT_FILE
from rlvr_jax.run.lineage import CONFIG_FILE, Lineage
from rlvr_jax.run.workdir import Workdir, saved_rollouts

_NOT_RESULTS = ("config", "seed", "invalid_golds")  # of summary.json
_EVAL_STAGES = ("eval_before", "eval_after")  # of rollouts/


def check_trackers(config: Config) -> None:
    """Raises ConfigError if a tracker lacks its library or its login."""
    if is_primary():
        for name in config.log.trackers:
            tracker_class(name).check_ready(offline=_is_offline(config))


class RunTrackers:
    """A run's trackers. Use as a context manager: leaving it closes them.

    Only the first of several processes has trackers.
    """

    def __init__(self, config: Config, workdir: Workdir, lineage: Lineage | None):
        self._config = config
        self._workdir = workdir
        self._state: TrackingState | None = None
        if is_primary() and config.log.trackers:
            self._state = TrackingState.open(
                workdir.path, parent=_describe_parent(lineage)
            )
        self.opened: tuple[BackgroundTracker, ...] = ()

    @property
    def lack_results(self) -> bool:
        """Returns whether a tracker still lacks the results of a finished run."""
        names = set(self._config.log.trackers)
        return self._state is not None and not names <= set(self._state.finished)

    def open(self) -> None:
        """Opens the trackers; each prints a line that says where to see the run.

        Raises ConfigError if one does not open.
        """
        if self._state is None:
            return
        for name in self._config.log.trackers:
            tracker = BackgroundTracker(
                name,
                tracker_class(name)(self._describe_run(name, self._state)),
                state=self._state,
                read_lines=lambda: read_lines(self._workdir.path / METRICS_FILE),
                describe=LineDescriber(self._config, self._workdir),
            )
            self._state.mark_finished(name, False)
            tracker.open()
            self.opened = (*self.opened, tracker)
            if tracker.place:
                print(f"tracker {name}: {tracker.place}", file=sys.stderr)

    def finish(self) -> None:
        """Hands the trackers the results: summary, completions, report."""
        path = self._workdir.path
        if not self.opened:
            return
        summary = self._workdir.read_summary()
        told = {k: v for k, v in summary.items() if k not in _NOT_RESULTS}
        files = [path / name for name in (REPORT_FILE, SUMMARY_FILE, CONFIG_FILE)]
        saved = saved_rollouts(path)
        rows = self._config.log.tracking.table_rows
        results = RunResults(
            num_lines=count_lines(path / METRICS_FILE),
            numbers=dict(flatten_numbers(told)),
            tables={
                stage: self._workdir.read_rollouts(stage, saved[stage][-1])[:rows]
                for stage in _EVAL_STAGES
                if stage in saved
            },
            files=[str(file) for file in files if file.exists()],
        )
        for tracker in self.opened:
            tracker.finish(results)

    def __enter__(self) -> Self:
        """Returns the trackers, not opened yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the trackers, also after an error."""
        stopped = error is None or isinstance(error, StoppedError)
        for tracker in self.opened:
            tracker.close(failed=not stopped)

    def _describe_run(self, name: str, state: TrackingState) -> TrackedRun:
        settings = self._config.log.tracking
        return TrackedRun(
            id=state.id,
            name=settings.name or _folder(self._workdir),
            project=settings.project,
            offline=_is_offline(self._config),
            workdir=str(self._workdir.path),
            config=to_json(self._config),
            parent=state.parent,
            num_logged=state.num_logged.get(name, 0),
        )


class LineDescriber:
    """Adds completions and the run doctor's alarms to a line of metrics.jsonl.

    Call it with every line in order, from the first: alarms depend on earlier lines.
    """

    def __init__(self, config: Config, workdir: Workdir):
        self._config = config
        self._workdir = workdir
        self._doctor = DoctorState()

    def __call__(self, line: TrackedLine, is_new: bool) -> TrackedLine:
        """Returns the line with its alarms, and its completions if it `is_new`."""
        if line.stage != "train":
            return line
        self._doctor, alarms = check_step(
            self._doctor,
            line.step,
            line.values,
            **alarm_limits(self._config),
        )
        rows = self._workdir.read_rollouts(line.stage, line.step) if is_new else []
        return dataclasses.replace(
            line,
            samples=rows[: self._config.log.tracking.table_rows],
            alarms=tuple(map(str, alarms)),
        )


def _folder(workdir: Workdir) -> str:
    """Returns the last part of the workdir's name, as the user gave it."""
    return PurePath(workdir.name).name or workdir.path.resolve().name


def _is_offline(config: Config) -> bool:
    return config.log.tracking.mode == "offline"


def _describe_parent(lineage: Lineage | None) -> Mapping[str, Any] | None:
    """Returns the run that this one started from, as trackers record it."""
    if lineage is None:
        return None
    return {
        "id": tracked_id(Path(lineage.workdir)),
        "workdir": lineage.workdir,
        "stage": lineage.stage,
        "step": lineage.step,
    }
