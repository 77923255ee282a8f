"""Reports which process the others are waiting for.

Every few seconds each process writes to the store of JAX's coordinator that it is
alive, and how many exchanges it has begun. Process 0 reports a process that writes
nothing new or has fallen behind. The others report when process 0, which holds the
store, does not answer. Time is counted in checks, so that a process that was itself
suspended blames no other.
"""

import collections
import sys
import threading
from collections.abc import Mapping
from typing import Any

BEAT_S = 3.0
SILENT_BEATS = 4  # after which a process is reported
BEHIND_BEATS = 20
_PREFIX = "job/alive/"


class Watch:
    """Keeps the last signs of life of the processes, and turns them into reports."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        self._silent: collections.Counter[int] = collections.Counter()
        self._behind: collections.Counter[int] = collections.Counter()

    def check(self, reports: Mapping[int, tuple[int, int]]) -> list[str]:
        """Returns a line for each process that is silent, behind, or back again.

        `reports` holds each process's last (beat, number of exchanges). Call it once
        every BEAT_S seconds.
        """
        newest = max((exchanges for _, exchanges in reports.values()), default=0)
        lines = []
        for number, (beat, exchanges) in sorted(reports.items()):
            is_new = self._last.get(number) != (beat, exchanges)
            is_behind = exchanges < newest
            lines += self._count(
                self._silent,
                number,
                grows=not is_new,
                limit=SILENT_BEATS,
                name="silent: it was stopped, or cannot be reached",
            )
            lines += self._count(
                self._behind,
                number,
                grows=is_behind and is_new,
                limit=BEHIND_BEATS,
                name="behind: it works, and the others wait for it",
            )
            self._last[number] = beat, exchanges
        return lines

    def _count(
        self,
        counter: collections.Counter[int],
        number: int,
        *,
        grows: bool,
        limit: int,
        name: str,
    ) -> list[str]:
        seconds = counter[number] * BEAT_S
        counter[number] = counter[number] + 1 if grows else 0
        if counter[number] == limit:
            return [f"process {number} has been {limit * BEAT_S:g} s {name}"]
        if not grows and seconds >= limit * BEAT_S:
            word = name.partition(":")[0]
            return [f"process {number} is no longer {word}, after {seconds:g} s"]
        return []


class Heartbeat:
    """Two threads: one reports that this process is alive, one watches the others."""

    def __init__(self) -> None:
        self._beats = self._exchanges = 0
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin_exchange(self) -> int:
        """Counts an exchange with the other processes; returns its number, from 0."""
        self._exchanges += 1
        return self._exchanges - 1

    def start(self, store: Any, index: int) -> None:
        """Starts writing to JAX's key-value store, and watching what others write."""
        for target in (self._tell, self._watch):
            thread = threading.Thread(target=target, args=(store, index), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, *, wait: bool) -> None:
        """Stops both threads; with `wait`, returns once they have ended.

        Use `wait` only while the store still answers.
        """
        self._over.set()
        for thread in self._threads if wait else ():
            thread.join()

    def _tell(self, store: Any, index: int) -> None:
        """Writes to the store. If it does not answer, waits until JAX ends us."""
        while not self._over.is_set():
            value = f"{self._beats} {self._exchanges}"
            try:
                store.key_value_set(f"{_PREFIX}{index}", value, True)
            except Exception:  # the store is gone: JAX ends this process by itself
                return
            self._beats += 1
            self._over.wait(BEAT_S)

    def _watch(self, store: Any, index: int) -> None:
        watch = Watch()
        while not self._over.wait(BEAT_S):
            # Other processes judge process 0 by how often its store has answered.
            reports = _read_all(store) if index == 0 else {0: (self._beats, 0)}
            for line in watch.check(reports):
                print(line, file=sys.stderr)


def _read_all(store: Any) -> dict[int, tuple[int, int]]:
    reports = {}
    for key, value in store.key_value_dir_get(_PREFIX):
        beat, exchanges = map(int, value.split())
        reports[int(key.removeprefix(_PREFIX))] = beat, exchanges
    return reports
