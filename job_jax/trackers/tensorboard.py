"""TensorBoard events for the lines of metrics.jsonl, one TensorBoard run per stage.

So the steps of two stages never overlap. Steps that a resumed run writes again are
voided, so TensorBoard shows them once.
"""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tensorboardX import summary as tensorboard
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from job_jax.disk import name_file
from job_jax.trackers.base import TrackedLine, Tracker

TENSORBOARD_DIR = "tensorboard"
_HISTOGRAM_BINS = 30


class TensorBoard(Tracker):
    """Writes event files into a workdir, each line before the next step starts."""

    def __init__(self, workdir: Path):
        self._workdir = workdir
        self._event_writers: dict[str, EventsWriter] = {}
        self._void_from: dict[str, int] = {}

    def rewind(self, void_from: Mapping[str, int]) -> None:
        """Voids steps in the next event file of their stage."""
        self.close(failed=False)
        for stage, step in void_from.items():
            self._void_from[stage] = min(step, self._void_from.get(stage, step))

    def log(self, line: TrackedLine) -> None:
        """Writes the line's scalars."""
        summary = Summary(
            value=[
                Summary.Value(tag=name, simple_value=value)
                for name, value in line.values.items()
                if value is not None
            ]
        )
        self._write_event(line.stage, line.step, summary)

    def log_samples(
        self,
        stage: str,
        step: int,
        *,
        texts: Mapping[str, str],
        histograms: Mapping[str, np.ndarray],
    ) -> None:
        """Writes texts and histograms; non-finite values are left out."""
        for tag, value in texts.items():
            # A model's text may hold lone surrogates, which UTF-8 cannot.
            clean = value.encode("utf-8", "replace").decode()
            self._write_event(stage, step, tensorboard.text(tag, clean))
        for tag, values in histograms.items():
            if (finite := values[np.isfinite(values)]).size:
                summary = tensorboard.histogram(tag, finite, bins=_HISTOGRAM_BINS)
                self._write_event(stage, step, summary)

    def close(self, *, failed: bool) -> None:
        """Closes every file; a further line opens a new one."""
        with name_file(self._workdir / TENSORBOARD_DIR):
            for board in self._event_writers.values():
                board.close()
        self._event_writers.clear()

    def _write_event(self, stage: str, step: int, summary: Summary) -> None:
        with name_file(self._workdir / TENSORBOARD_DIR / stage):
            board = self._event_writers.get(stage) or self._open_event_writer(stage)
            board.write_event(Event(wall_time=time.time(), step=step, summary=summary))
            board.flush()

    def _open_event_writer(self, stage: str) -> EventsWriter:
        """Starts an event file, which says which older events are void."""
        directory = self._workdir / TENSORBOARD_DIR / stage
        directory.mkdir(parents=True, exist_ok=True)
        # A file's name contains whole seconds only, so we also number the files;
        # otherwise a quick restart would overwrite the previous one.
        number = len(list(directory.iterdir()))
        board = EventsWriter(str(directory / "events"), f".{number}")
        if stage in self._void_from:
            start = SessionLog(status=SessionLog.START)
            step = self._void_from.pop(stage)
            board.write_event(
                Event(wall_time=time.time(), step=step, session_log=start)
            )
        self._event_writers[stage] = board
        return board
