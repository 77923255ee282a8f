"""TensorBoard events for the lines of metrics.jsonl, one TensorBoard run per stage.

So the steps of two stages never overlap. Steps that a resumed run writes again are
voided, so TensorBoard shows them once.
"""

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import summary as tensorboard
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter

from job_jax.disk import name_file
from job_jax.trackers.base import TrackedLine, Tracker

TENSORBOARD_DIR = "tensorboard"
_HISTOGRAM_BINS = 30
_FILE_VERSION = "brain.Event:2"


class _EventFile(RecordWriter):
    """An event file. A flush gives the events to the system, as metrics.jsonl's does.

    The library's flush also waits for the disk, which takes milliseconds a line, and
    longer on a disk in the network.
    """

    def flush(self) -> None:
        """Makes all events visible to other processes."""
        self._writer.flush()


class TensorBoard(Tracker):
    """Writes event files into a workdir, each line before the next step starts."""

    def __init__(self, workdir: Path):
        self._workdir = workdir
        self._files: dict[str, _EventFile] = {}
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
            for file in self._files.values():
                file.close()
        self._files.clear()

    def _write_event(self, stage: str, step: int, summary: Summary) -> None:
        with name_file(self._workdir / TENSORBOARD_DIR / stage):
            file = self._files.get(stage) or self._open_file(stage)
            _write(file, step=step, summary=summary)
            file.flush()

    def _open_file(self, stage: str) -> _EventFile:
        """Starts an event file, which says which older events are void."""
        directory = self._workdir / TENSORBOARD_DIR / stage
        directory.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads files in the order of their names. Those hold whole seconds,
        # so we also number them; otherwise a quick restart would overwrite a file.
        number = len(list(directory.iterdir()))
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{number}"
        file = _EventFile(str(directory / name))
        _write(file, file_version=_FILE_VERSION)
        if stage in self._void_from:
            start = SessionLog(status=SessionLog.START)
            _write(file, step=self._void_from.pop(stage), session_log=start)
        self._files[stage] = file
        return file


def _write(file: _EventFile, **event: Any) -> None:
    file.write(Event(wall_time=time.time(), **event).SerializeToString())
