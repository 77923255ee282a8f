"""The process that forks all programs and tests; it reads neither.

`sandbox.pool` runs it as a script. It imports the modules that programs may import,
goes behind the second wall, and then serves the socket on file descriptor 0. Each
request brings one socket, for the tests. The zygote then forks a process for the tests
and one for the program. It knows no tests, so forked processes have no secrets in
memory.
"""

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable

from rlvr_jax.sandbox import jail, program, system_calls, tester

# Modules that programs and tests can import; later, nothing can be read from disk.
MODULES = (
    "abc",
    "array",
    "ast",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "inspect",
    "io",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "os",
    "pprint",
    "queue",
    "random",
    "re",
    "statistics",
    "string",
    "struct",
    "sys",
    "textwrap",
    "threading",
    "time",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "unittest",
    "warnings",
    "zlib",
)
_LOADED_LATER = (
    "_strptime",
    "encodings.ascii",
    "encodings.latin_1",
    "encodings.utf_16",
)
_MAX_PACKET = 4096  # bytes


@dataclasses.dataclass
class _Pair:
    """The two processes of one request, and how the program's process ended."""

    number: int
    tester: int
    program: int
    deadline: float
    running: set[int]
    program_status: int = 0
    timed_out: bool = False

    def kill(self) -> None:
        """Kills the processes that still run."""
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)


class _Zygote:
    """Starts pairs, ends pairs that take too long, and reports how each ended."""

    def __init__(self, control: socket.socket, limits: dict[str, int]):
        self._control = control
        self._limits = limits
        self._filter = system_calls.make_filter()
        self._pairs: dict[int, _Pair] = {}  # by either process id
        self._wake, waker = socket.socketpair()
        self._wake.setblocking(False)
        waker.setblocking(False)
        self._waker = waker
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

    def check_jail(self) -> list[str]:
        """Returns the forbidden actions that a jailed process can do."""
        ours, theirs = socket.socketpair()

        def attempt(channel: int) -> None:
            os.write(channel, json.dumps(jail.try_what_is_forbidden()).encode())

        with ours:
            pid = self._fork(theirs, attempt)
            theirs.close()
            said = ours.recv(_MAX_PACKET)
        os.waitpid(pid, 0)
        return json.loads(said) if said else ["enter the jail"]

    def serve(self) -> None:
        """Serves until the other end of the control socket is closed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                events = selector.select(self._seconds_left())
                if any(key.fileobj is self._control for key, _ in events):
                    data, fds, _, _ = socket.recv_fds(self._control, _MAX_PACKET, 1)
                    if not data:
                        break
                    self._start(json.loads(data)["number"], fds[0])
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(_MAX_PACKET)
                self._reap()
                self._end_overdue()
        for pair in self._pairs.values():
            pair.kill()

    def _seconds_left(self) -> float | None:
        if not self._pairs:
            return None
        nearest = min(pair.deadline for pair in self._pairs.values())
        return max(0.0, nearest - time.monotonic())

    def _start(self, number: int, request_fd: int) -> None:
        request = socket.socket(fileno=request_fd)
        ours, theirs = socket.socketpair()
        with request, ours, theirs:
            program_pid = self._fork(theirs, program.serve)
            theirs.close()

            def test(channel: int) -> None:
                tester.serve(channel, jail.CHANNEL + 1)

            tester_pid = self._fork(request, test, beside=ours)
        deadline = time.monotonic() + self._limits["wall_s"]
        pids = {program_pid, tester_pid}
        pair = _Pair(number, tester_pid, program_pid, deadline, pids)
        self._pairs |= dict.fromkeys(pids, pair)

    def _fork(
        self,
        channel: socket.socket,
        work: Callable[[int], None],
        *,
        beside: socket.socket | None = None,
    ) -> int:
        """Forks a jailed child that does the work and exits; returns its process id."""
        pid = os.fork()
        if pid:
            return pid
        try:
            files = [channel.fileno()] + ([beside.fileno()] if beside else [])
            jail.enter(
                files,
                self._filter,
                cpu_s=self._limits["cpu_s"],
                memory_bytes=self._limits["memory_mb"] << 20,
            )
            work(jail.CHANNEL)
        except BaseException:
            os._exit(1)
        os._exit(0)

    def _reap(self) -> None:
        while self._pairs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            pair = self._pairs.pop(pid)
            pair.running.discard(pid)
            if pid == pair.program:
                pair.program_status = os.waitstatus_to_exitcode(status)
            else:  # the tests have ended, so the program must end too
                pair.kill()
            if not pair.running:
                self._report(pair)

    def _end_overdue(self) -> None:
        for pair in self._pairs.values():
            if time.monotonic() > pair.deadline and not pair.timed_out:
                pair.timed_out = True
                pair.kill()

    def _report(self, pair: _Pair) -> None:
        report = {
            "number": pair.number,
            "signal": max(0, -pair.program_status),
            "timed_out": pair.timed_out,
        }
        self._control.send(json.dumps(report).encode())


def main(limits: dict[str, int]) -> None:
    """Serves pairs of programs and tests until the trainer ends."""
    for name in (*MODULES, *_LOADED_LATER):
        importlib.import_module(name)
    sys.path.clear()
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.chdir("/")
    refused = jail.isolate()
    gc.freeze()
    zygote = _Zygote(control, limits)
    possible = zygote.check_jail()
    control.send(json.dumps({"refused": refused, "possible": possible}).encode())
    with contextlib.suppress(ConnectionError):  # the trainer was killed
        zygote.serve()


if __name__ == "__main__":
    main(json.loads(sys.argv[-1]))
