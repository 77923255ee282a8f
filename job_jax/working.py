"""Prints what a command is doing whenever it would be silent for over ten seconds.

    with working("stage eval"):
        with working("sampling"):
            ...

prints "... stage eval: sampling, 10s so far" to standard error ten seconds after the
last line, and again every ten seconds. A progress line counts as a line; if one is
open, the reminder repeats it, with the progress and the time left. Work that ends
sooner prints nothing, and nothing is printed after the work has ended.
"""

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TextIO

from job_jax.processes import is_primary

QUIET_S = 10.0

Stop = Callable[[], None]


class ProgressLine(Protocol):
    """A line that shows how far the work is (`metrics.Progress`)."""

    def remind(self, activity: str) -> None:
        """Prints the line again, together with the current activity."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    activity: str
    start: float


def start_timer(check: Callable[[], float], *, first_s: float = QUIET_S) -> Stop:
    """Calls `check` in a thread until the returned function is called.

    `check` returns the seconds until its next call; the first is after `first_s`.
    """
    over = threading.Event()

    def run() -> None:
        wait_s = first_s
        while not over.wait(wait_s):
            wait_s = check()

    thread = threading.Thread(target=run, name="working", daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop


class Narrator:
    """Tracks the current work and the last printed line; prints reminders.

    Each process has one (`NARRATOR`). The timer runs while there is work. Only process
    0 prints.
    """

    def __init__(
        self,
        *,
        stream: TextIO | None = None,  # None: standard error
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[Callable[[], float]], Stop] = start_timer,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._timer = timer
        # Held while a line is printed, so that two never mix.
        self.lock = threading.RLock()
        self._works: list[_Work] = []
        # Open progress lines, each with the depth of nested work when it was opened.
        self._lines: list[tuple[int, ProgressLine]] = []
        self._last_line = 0.0
        self._stop: Stop | None = None

    @contextlib.contextmanager
    def work(self, activity: str) -> Iterator[None]:
        """Registers an activity until the `with` block ends."""
        work = _Work(activity, self._clock())
        with self.lock:
            self._works.append(work)
            if self._stop is None:
                self._last_line = work.start
                self._stop = self._timer(self.check)
        try:
            yield
        finally:
            self._end(work)

    def _end(self, work: _Work) -> None:
        stop = None
        with self.lock:
            self._works.remove(work)
            depth = len(self._works)
            self._lines = [each for each in self._lines if each[0] <= depth]
            if not self._works:
                stop, self._stop = self._stop, None
        if stop is not None:  # after releasing the lock: the timer's thread may want it
            stop()

    def check(self) -> float:
        """Prints a reminder if one is due; returns the seconds until the next check."""
        with self.lock:
            if not self._works:
                return QUIET_S
            now = self._clock()
            if (left := self._last_line + QUIET_S - now) > 0:
                return left
            self._remind(now)
            self._last_line = now
            return QUIET_S

    def _remind(self, now: float) -> None:
        if not is_primary():
            return
        work = self._works[-1]
        elapsed = f"{format_duration(now - work.start)} so far"
        if self._lines:  # the progress line names its stage itself
            self._lines[-1][1].remind(f"{work.activity}, {elapsed}")
            return
        activity = ": ".join(each.activity for each in self._works)
        stream = self._stream or sys.stderr
        stream.write(f"... {activity}, {elapsed}\n")
        stream.flush()

    def note_line(self) -> None:
        """Records that a line was just printed."""
        self._last_line = self._clock()

    def open_line(self, line: ProgressLine) -> None:
        """Makes reminders repeat a progress line while the current work lasts."""
        with self.lock:
            if self._works:
                self._lines.append((len(self._works), line))

    def close_line(self, line: ProgressLine) -> None:
        """Undoes `open_line`."""
        with self.lock:
            self._lines = [each for each in self._lines if each[1] is not line]


NARRATOR = Narrator()


def working(activity: str) -> contextlib.AbstractContextManager[None]:
    """Reports this activity if the `with` block takes more than 10 s."""
    return NARRATOR.work(activity)


def format_duration(seconds: float) -> str:
    """Returns 45s, 2m10s or 1h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
