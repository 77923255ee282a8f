"""Scalars of a run: metrics.jsonl, progress line, compile count.

metrics.jsonl is the record; every line is handed to the system before the next step
starts. TensorBoard and other trackers show the same lines (`job_jax.trackers`).
"""

import collections
import io
import json
import math
import numbers
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, SupportsFloat, TextIO

import jax
import numpy as np

from job_jax.closing import Closing
from job_jax.disk import name_file
from job_jax.metrics_file import METRICS_FILE, read_records
from job_jax.processes import is_primary
from job_jax.trackers.base import TrackedLine, Tracker
from job_jax.trackers.tensorboard import TensorBoard
from job_jax.working import NARRATOR, Narrator, format_duration

# First steps, which also compile, so their duration does not predict the next ones.
_COMPILING_STEPS = 2
_ETA_WINDOW = 20
_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


class NonFiniteMetricError(ArithmeticError):
    """A metric became NaN or infinite. The message names metric, stage and step."""


class MetricsWriter(Closing):
    """Appends to a workdir's metrics.jsonl and hands each line to its trackers.

    There is one per run. TensorBoard is always among the trackers; the caller that
    opened the others closes them. `time_s` counts the seconds the run has worked. It
    continues from the last line kept, so the time between an interruption and the
    restart is not counted. Process 0 writes; the other processes only check the values.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        *,
        trackers: Sequence[Tracker] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = pathlib.Path(workdir) / METRICS_FILE
        self._clock = clock
        self._tensorboard = TensorBoard(pathlib.Path(workdir))
        self._trackers = (self._tensorboard, *trackers) if is_primary() else ()
        self._num_lines = 0
        self._origin = clock()
        if is_primary():
            self._file = self._path.open("ab")
            self._origin -= self._drop_stale_lines(lambda record: False)

    def rewind(self, stage: str, step: int) -> None:
        """Drops the lines that a resumed run writes again: `stage` from `step` on.

        The file is cut before the first such line, so everything after it goes too,
        including later stages. Earlier stages stay. A cut is one system call, so a
        process killed at that moment leaves the old file or the new one.
        """
        if is_primary():
            self._drop_stale_lines(lambda r: r["stage"] == stage and r["step"] >= step)

    def write(
        self,
        stage: str,
        step: int,
        values: Mapping[str, SupportsFloat],
        *,
        nullable: Collection[str] = (),
    ) -> None:
        """Appends one line.

        A non-finite value raises `NonFiniteMetricError`, and nothing is written. A
        metric in `nullable` becomes null instead: a skipped optimizer step, for
        example, has no gradient norm to report.
        """
        scalars: dict[str, float | None] = {}
        for name, value in values.items():
            scalar = int(value) if isinstance(value, numbers.Integral) else float(value)
            if math.isfinite(scalar):
                scalars[name] = scalar
            elif name in nullable:
                scalars[name] = None
            else:
                raise NonFiniteMetricError(
                    f"metric {name} is {scalar} at {stage} step {step}"
                )
        if not is_primary():
            return
        time_s = round(self._clock() - self._origin, 3)
        record = {"stage": stage, "step": step, "time_s": time_s, **scalars}
        with name_file(self._path):
            self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            self._file.flush()
        line = TrackedLine(
            number=self._num_lines,
            stage=stage,
            step=step,
            time_s=time_s,
            values=scalars,
        )
        self._num_lines += 1
        for tracker in self._trackers:
            tracker.log(line)

    def close(self) -> None:
        """Closes every file. Further writes fail."""
        if is_primary():
            self._tensorboard.close(failed=False)
            with name_file(self._path):
                self._file.close()

    def _drop_stale_lines(self, is_stale: Callable[[dict[str, Any]], bool]) -> float:
        """Cuts the file before its first stale line; always drops a torn last line.

        Returns the `time_s` of the last line kept.
        """
        keep, seconds, stale = 0, 0.0, False
        void_from: dict[str, int] = {}
        self._num_lines = 0
        for end, record in read_records(self._path):
            stale = stale or is_stale(record)
            if stale:
                stage, step = record["stage"], record["step"]
                void_from[stage] = min(step, void_from.get(stage, step))
            else:
                keep, seconds = end, record["time_s"]
                self._num_lines += 1
        for tracker in self._trackers:
            tracker.rewind(void_from)
        self._file.truncate(keep)
        if stale:
            self._origin = self._clock() - seconds
        return seconds

    def write_samples(
        self,
        stage: str,
        step: int,
        *,
        texts: Mapping[str, str],
        histograms: Mapping[str, np.ndarray],
    ) -> None:
        """Hands texts and histograms to the trackers only. Call it before `write`.

        TensorBoard shows them, leaving out a histogram's non-finite values.
        """
        for tracker in self._trackers:
            tracker.log_samples(stage, step, texts=texts, histograms=histograms)


class Progress:
    """One line per stage: steps done, a few values, tokens per second, time left.

    On a terminal the line is redrawn in place at every step; elsewhere a line is
    printed every `every` steps and at the last one. Speed and ETA are means over the
    latest steps, without the first ones, which compile. Only process 0 shows the line.
    While a step takes long, `job_jax.working` repeats it.
    """

    def __init__(
        self,
        stage: str,
        total: int,
        *,
        every: int,
        start: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        narrator: Narrator = NARRATOR,
    ) -> None:
        self._stage = stage
        self._total = total
        self._every = every
        if stream is None:
            stream = sys.stderr if is_primary() else io.StringIO()
        self._stream = stream
        self._in_place = self._stream.isatty()
        self._line = ""
        self._values: dict[str, str] = {}
        self._clock = clock
        self._last = clock()
        self._done = start
        self._timed_from = start + _COMPILING_STEPS
        # Seconds, steps and tokens of the latest updates.
        self._recent: collections.deque[tuple[float, int, int]] = collections.deque(
            maxlen=_ETA_WINDOW
        )
        self._narrator = narrator
        narrator.open_line(self)

    def update(
        self, step: int, values: Mapping[str, SupportsFloat], *, tokens: int = 0
    ) -> None:
        """Reports that `step` steps of the stage are done.

        `tokens` counts the tokens since the last update, which is usually one step ago.
        """
        now = self._clock()
        if self._done >= self._timed_from:
            self._recent.append((now - self._last, step - self._done, tokens))
        self._last, self._done = now, step
        self._values = {n: format_number(float(v)) for n, v in values.items()}
        with self._narrator.lock:
            if self._in_place:
                self._draw(self._describe(now))
            elif step % self._every == 0 or step == self._total:
                self._print(self._describe(now))

    def remind(self, activity: str) -> None:
        """Prints the line together with the current activity."""
        line = self._describe(self._clock())
        if self._in_place:
            self._draw(f"{line}  ({activity})")
        else:
            self._print(f"... {activity} ({line})")

    def log(self, text: str) -> None:
        """Prints `text` on a separate line above the progress line."""
        with self._narrator.lock:
            if self._in_place:
                self._stream.write(f"\r{text}\x1b[K\n{self._line}")
                self._stream.flush()
            else:
                self._print(text)

    def close(self) -> None:
        """Ends the progress line, which stays visible."""
        self._narrator.close_line(self)
        if self._in_place and self._line:
            self._stream.write("\n")
            self._stream.flush()

    def _describe(self, now: float) -> str:
        """Returns the line; the time left also shrinks between two updates."""
        parts = [f"{self._stage}  {self._done}/{self._total}"]
        parts += [f"{name} {value}" for name, value in self._values.items()]
        seconds, steps, count = (
            sum(x) for x in zip((0, 0, 0), *self._recent, strict=True)
        )
        if seconds > 0:
            rate = count / seconds
            if rate > 0:
                parts.append(f"{format_number(rate)} tok/s")
            left = (self._total - self._done) * seconds / steps - (now - self._last)
            parts.append(f"ETA {format_duration(max(0.0, left))}")
        return "  ".join(parts)

    def _draw(self, line: str) -> None:
        # A line that wraps could not be redrawn.
        self._line = line[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r{self._line}\x1b[K")
        self._stream.flush()
        self._narrator.note_line()

    def _print(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()
        self._narrator.note_line()


class CompileCounter:
    """Counts this process's compilations since the counter was created."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _COMPILE_EVENT:
            self.count += 1
            self.seconds += duration_secs


def format_number(value: float) -> str:
    """Returns a number with about three digits: 0.62, 38.2, 512, 1.4k, 612k, 2.1M."""
    unit = ""
    for next_unit in ("k", "M"):
        if abs(value) >= 999.5:
            value, unit = value / 1000, next_unit
    digits = 0 if abs(value) >= 99.95 else 1 if unit or abs(value) >= 9.995 else 2
    return f"{value:.{digits}f}{unit}"
