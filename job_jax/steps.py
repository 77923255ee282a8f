"""The bookkeeping of a stage's steps: resume, metrics, progress, checkpoints, stop.

A stage ends with the same parameters and metrics however often it was interrupted:
everything that is not in the checkpoint is a function of (config, step).
"""

import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from job_jax import processes
from job_jax.checkpoint import StageCheckpoints
from job_jax.command import StoppedError
from job_jax.config import CheckpointConfig
from job_jax.metrics import MetricsWriter, Progress
from job_jax.working import working

State = TypeVar("State")


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignal:
    """Remembers that one of STOP_SIGNALS came, so that the current step can finish."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    def install(self) -> None:
        """Takes over the signals. A SIGINT after one of them ends the process at once.

        A closing terminal sends SIGHUP. It stays ignored if it was, because nohup wants
        the run to continue.
        """
        for number in STOP_SIGNALS:
            is_ignored = signal.getsignal(number) is signal.SIG_IGN
            if not (number == signal.SIGHUP and is_ignored):
                signal.signal(number, self._on_signal)

    def requested(self) -> bool:
        """Returns whether a signal came to any process; all call it together."""
        return any(processes.all_gather_json(self._requested.is_set()))

    def check(self) -> None:
        """Raises StoppedError if a signal came."""
        if self.requested():
            raise StoppedError

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._requested.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)


class StageSteps:
    """Iterates over the remaining steps of a stage.

    It manages the stage's checkpoints in `directory/name`, its metrics and its progress
    line; the caller's loop owns the state. Use it as a context manager: take the state
    from `resume_or_init`, and hand it to `commit` after every step.
    """

    def __init__(
        self,
        name: str,
        num_steps: int,
        *,
        directory: pathlib.Path,
        checkpoint: CheckpointConfig,
        progress_every: int,
        writer: MetricsWriter,
        stop_signal: StopSignal,
        after_step: Callable[[], None] | None = None,  # between saves
        clock: Callable[[], float] = time.monotonic,  # seconds
    ):
        self.name = name
        self.num_steps = num_steps
        self._every = checkpoint.every
        self._max_age = 60 * checkpoint.every_minutes  # seconds; 0: any
        self._clock = clock
        self._saved_at = clock()
        self._writer = writer
        self._stop_signal = stop_signal
        self._after_step = after_step
        self._checkpoints = StageCheckpoints(directory / name, checkpoint)
        self.start_step = (
            processes.broadcast(lambda: self._checkpoints.latest_step) or 0
        )
        self._progress = Progress(
            name, num_steps, every=progress_every, start=self.start_step
        )
        self._start_time = time.monotonic()
        self._seconds_before = 0.0

    def resume_or_init(
        self, init: Callable[[], State], abstract: Callable[[], State]
    ) -> tuple[State, dict[str, Any] | None]:
        """Returns the device state and host state of the newest checkpoint.

        Without a checkpoint: `init()` and None. With one, arrays are restored with the
        shapes, dtypes and shardings of `abstract()`, and `init` is not called: a
        resumed run never holds its state twice.
        """
        if not self.start_step:
            self._writer.rewind(self.name, 0)
            return init(), None
        with working(f"loading the checkpoint of step {self.start_step}"):
            state, saved = self._checkpoints.restore(self.start_step, abstract())
        self._writer.rewind(self.name, self.start_step)
        self._seconds_before = saved["seconds"]
        return state, saved["host"]

    def __iter__(self) -> Iterator[int]:
        """Yields the remaining steps."""
        yield from range(self.start_step, self.num_steps)

    def commit(
        self,
        step: int,
        state: object,
        metrics: Mapping[str, float] | None,
        *,
        host_state: Callable[[], dict[str, Any]] = dict,
        displayed: Mapping[str, str],
        tokens: int,
        skipped: bool = False,
    ) -> None:
        """Reports a finished step, and saves a checkpoint if one is due.

        `state` is on the devices; `host_state` returns the matching host state as JSON,
        and is called only for a checkpoint. `displayed` maps words of the progress line
        to names of metrics. Without metrics the step is not reported;
        `tokens` counts the tokens since the last report. Metrics of a `skipped`
        optimizer step may be non-finite. If a signal came meanwhile, it saves a
        checkpoint and raises StoppedError.
        """
        done = step + 1
        if metrics is not None:
            nullable = metrics if skipped else ()
            self._writer.write(self.name, step, metrics, nullable=nullable)
            values = {word: metrics[name] for word, name in displayed.items()}
            self._progress.update(done, values, tokens=tokens)
        stopping = self._stop_signal.requested()
        due = done % self._every == 0 or done == self.num_steps or stopping
        if due or self._is_overdue():
            saved = {"seconds": self.seconds, "host": host_state()}
            with working("saving a checkpoint"):
                self._checkpoints.save(done, state, saved)
            self._saved_at = self._clock()
        self._checkpoints.record_digests()
        if self._after_step and not self._checkpoints.is_saving:
            self._after_step()
        if stopping and done < self.num_steps:
            raise StoppedError

    def _is_overdue(self) -> bool:
        """Returns whether the last checkpoint is too old, by process 0's clock.

        All processes call it together, since they save a checkpoint together.
        """
        if not self._max_age:
            return False
        return processes.broadcast(
            lambda: self._clock() - self._saved_at >= self._max_age
        )

    def log(self, text: str) -> None:
        """Prints a line above the progress line."""
        self._progress.log(text)

    @property
    def seconds(self) -> float:
        """Returns the stage's seconds of work, over all attempts."""
        return self._seconds_before + time.monotonic() - self._start_time

    def __enter__(self) -> Self:
        """Returns the stage itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Waits for running saves and ends the progress line."""
        with working("waiting for the last checkpoint"):
            self._checkpoints.close()
        self._progress.close()
