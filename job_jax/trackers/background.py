"""Keeps a tracker up to date with metrics.jsonl, in a separate thread.

The run never waits for a tracker and never fails because of one. Lines that a tracker
missed are read from metrics.jsonl when it works again or when the run is resumed.
"""

import collections
import sys
import threading
from collections.abc import Callable, Sequence

from job_jax.schema import ConfigError
from job_jax.trackers.base import RunResults, TrackedLine, Tracker
from job_jax.trackers.state import TrackingState

_MAX_PENDING = 1000  # lines held in memory for a slow tracker
_PATIENCE_S = 60.0  # without progress, at the end of a run


class BackgroundTracker(Tracker):
    """Hands a tracker each line of metrics.jsonl once, by its number.

    `read_lines` returns the lines of metrics.jsonl, and `describe` adds samples and
    alarms to a line. `describe` is called for every line from the first on, in order,
    with a flag that says whether the line will be handed over. The first failure of the
    tracker is printed. A failed line is retried with the next line, or at once if the
    tracker has just accepted another.
    """

    def __init__(
        self,
        name: str,
        tracker: Tracker,
        *,
        state: TrackingState,
        read_lines: Callable[[], Sequence[TrackedLine]],
        describe: Callable[[TrackedLine, bool], TrackedLine],
        patience_s: float = _PATIENCE_S,
    ):
        super().__init__(tracker.run)
        self.name = name
        self._tracker = tracker
        self._state = state
        self._read_lines = read_lines
        self._describe = describe
        self._patience_s = patience_s
        self._thread = threading.Thread(
            target=self._work, name=f"tracker {name}", daemon=True
        )
        self._changed = threading.Condition()
        # Guarded by `_changed`.
        self._pending: collections.deque[TrackedLine] = collections.deque()
        self._end = 0  # number of lines so far
        self._results: RunResults | None = None
        self._news, self._seen_news = 0, 0
        self._closing, self._failed = False, False
        # Used by the thread alone.
        self._held: int | None = None  # lines that the tracker has; None: not open
        self._next = 0  # the next line to hand over
        self._backlog: collections.deque[TrackedLine] = collections.deque()
        self._described: TrackedLine | None = None
        self._progress = 0
        self._has_warned = False

    def open(self) -> int:
        """Opens the tracker. Raises ConfigError if it does not open.

        If it has tracked this run before, the thread retries instead, so that a job
        that restarts automatically does not fail while the network is down.
        """
        try:
            self._held = self._tracker.open()
        except ConfigError:
            raise
        except Exception as error:
            if not self.run.num_logged:
                raise ConfigError(
                    f"log.trackers: {self.name} does not open: {_one_line(error)}; set "
                    f"log.tracking.mode=offline, or leave {self.name} out"
                ) from error
            self._warn(error)
        self._thread.start()
        return self._held or 0

    @property
    def place(self) -> str:
        """Returns where the tracker shows the run."""
        return "" if self._held is None else self._tracker.place

    def log(self, line: TrackedLine) -> None:
        """Queues a line; returns at once."""
        with self._changed:
            self._end = max(self._end, line.number + 1)
            if len(self._pending) < _MAX_PENDING:
                self._pending.append(line)
            self._notify()

    def finish(self, results: RunResults) -> None:
        """Queues the results of a run; returns at once."""
        with self._changed:
            self._end = max(self._end, results.num_lines)
            self._results = results
            self._notify()

    def close(self, *, failed: bool) -> None:
        """Waits until the tracker has everything, or stops making progress."""
        if not self._thread.is_alive():
            return
        with self._changed:
            self._closing, self._failed = True, failed
            self._notify()
        while self._thread.is_alive():
            progress = self._progress
            self._thread.join(self._patience_s)
            if self._thread.is_alive() and self._progress == progress:
                self._say(f"no answer for {self._patience_s:g} s; giving up on it")
                break
        if (missing := self._end - self._next) > 0:
            self._say(
                f"lacks the last {missing} of {self._end} lines; they are in "
                "metrics.jsonl; once it works, run the same command again to send them"
            )

    def _notify(self) -> None:
        self._news += 1
        self._changed.notify()

    def _work(self) -> None:
        """Catches up whenever there is news, and a last time at the end."""
        while self._wait_for_news():
            progress = self._progress
            try:
                self._catch_up()
            except (Exception, SystemExit) as error:
                self._warn(error)
                if self._progress > progress:  # it accepted a line: retry at once
                    with self._changed:
                        self._news += 1
        if self._held is None:
            return
        try:
            self._tracker.close(failed=self._failed)
        except (Exception, SystemExit) as error:
            # Not everything that was handed over has arrived.
            self._state.mark_finished(self.name, False)
            self._say(
                f"{_one_line(error)} while closing; run the same command to try again"
            )

    def _wait_for_news(self) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closing or self._news != self._seen_news
            )
            has_news = self._news != self._seen_news
            self._seen_news = self._news
            return has_news

    def _catch_up(self) -> None:
        if self._held is None:
            self._held = self._tracker.open()
        while (line := self._next_line()) is not None:
            is_new = line.number >= self._held
            if self._described is None or self._described.number != line.number:
                self._described = self._describe(line, is_new)
            if is_new:
                self._tracker.log(self._described)
                self._state.mark(self.name, line.number + 1)
            self._next = line.number + 1
            self._progress += 1
        if self._results is not None:
            self._tracker.finish(self._results)
            self._state.mark_finished(self.name, True)
            self._results = None
            self._progress += 1

    def _next_line(self) -> TrackedLine | None:
        """Returns the next line, from memory or from the file."""
        with self._changed:
            for lines in (self._backlog, self._pending):
                while lines and lines[0].number < self._next:
                    lines.popleft()
                if lines and lines[0].number == self._next:
                    return lines[0]
            if self._next >= self._end:
                return None
        lines_there = self._read_lines()[self._next :]
        self._backlog = collections.deque(lines_there)
        return self._backlog[0] if self._backlog else None

    def _warn(self, error: BaseException) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._say(
                f"{_one_line(error)}; the run continues, metrics.jsonl has every line, "
                "and the next line triggers another try"
            )

    def _say(self, text: str) -> None:
        print(f"tracker {self.name}: {text}", file=sys.stderr, flush=True)


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
