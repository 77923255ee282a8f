"""The bookkeeping of a stage's steps: resume, metrics, progress, checkpoints, stop.

A stage ends with the same parameters and metrics however often it was cut: what it
needs beside the checkpoint is a function of (config, step).
"""

import pathlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, Self

from job_jax import processes
from job_jax.checkpoint import StageCheckpoints
from job_jax.command import StoppedError
from job_jax.config import CheckpointConfig
from job_jax.metrics import MetricsWriter, Progress


class StopSignal:
    """Remembers that SIGTERM or SIGINT came, so that a step can end first."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def install(self) -> None:
        """Takes over both signals. A second SIGINT ends the process at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def asked(self) -> bool:
        """Returns whether a signal came, to any process; all ask together."""
        return any(processes.exchange(self._asked.is_set()))

    def check(self) -> None:
        """Raises StoppedError if a signal came."""
        if self.asked():
            raise StoppedError

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)


class StageSteps:
    """Iterates over a stage's steps, from wherever an earlier attempt stopped: `first`.

    Its checkpoints stand in `directory/name`.
    Use as a context manager; give `end` the state after every step.
    """

    def __init__(
        self,
        name: str,
        total: int,
        *,
        directory: pathlib.Path,
        checkpoint: CheckpointConfig,
        progress_every: int,
        writer: MetricsWriter,
        stop: StopSignal,
    ):
        self.name = name
        self.total = total
        self.state: Any = None
        self.host: dict[str, Any] = {}
        self._every = checkpoint.every
        self._writer = writer
        self._stop = stop
        self._checkpoints = StageCheckpoints(directory / name, checkpoint)
        self.first = processes.from_primary(lambda: self._checkpoints.latest_step) or 0
        self._progress = Progress(name, total, every=progress_every, start=self.first)
        self._started = time.monotonic()

    def begin(self, fresh: Callable[[], Any], host: dict[str, Any]) -> None:
        """Sets `state` and `host`: from the newest checkpoint, else as given."""
        self.state, self.host = fresh(), {"seconds": 0.0, **host}
        if self.first:
            self.state, self.host = self._checkpoints.restore(self.first, self.state)
        self._earlier = self.host["seconds"]
        self._writer.rewind(self.name, self.first)

    def __iter__(self) -> Iterator[int]:
        """Yields the steps that are still to do."""
        yield from range(self.first, self.total)

    def end(
        self,
        step: int,
        metrics: Mapping[str, float] | None,
        *,
        shown: Collection[str],
        tokens: int,
        skipped: bool,
    ) -> None:
        """Records a step that is done, with `state` and `host` as it left them.

        Without metrics the step goes unreported; `tokens` are those since the last
        report. What is costly to write as JSON stands in `host` as a function that
        returns it. A skipped optimizer step may report values that are not finite.
        Raises StoppedError after a checkpoint if a signal came meanwhile.
        """
        done = step + 1
        if metrics is not None:
            nullable = metrics if skipped else ()
            self._writer.write(self.name, step, metrics, nullable=nullable)
            values = {name.split("/")[-1]: metrics[name] for name in shown}
            self._progress.update(done, values, tokens=tokens)
        stopping = self._stop.asked()
        due = done % self._every == 0
        if due or done == self.total or stopping:
            self.host["seconds"] = self.seconds
            host = {n: v() if callable(v) else v for n, v in self.host.items()}
            self._checkpoints.save(done, self.state, host)
        if stopping and done < self.total:
            raise StoppedError

    def say(self, text: str) -> None:
        """Prints a line above the progress line."""
        self._progress.say(text)

    @property
    def seconds(self) -> float:
        """Returns the stage's seconds of work, all attempts together."""
        return self._earlier + time.monotonic() - self._started

    def __enter__(self) -> Self:
        """Returns the stage itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Waits for saves under way and leaves the progress line standing."""
        self._checkpoints.close()
        self._progress.close()
