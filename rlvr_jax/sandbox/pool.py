"""Runs programs against their tests, several at a time, in jailed processes.

The trainer has many threads and JAX in memory, so it must never fork. Instead it starts
one small process (`zygote`) and gives it a socket for each run. The program and the
tests go through that socket, so the process that forks never sees them.
"""

import collections
import contextlib
import dataclasses
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from job_jax.closing import Closing
from rlvr_jax.sandbox import system_calls
from rlvr_jax.sandbox.messages import MessageError, receive, send

_REPOSITORY = Path(__file__).parents[2]
_BOOTSTRAP = """
import runpy, sys
sys.path.append(sys.argv[1])
runpy.run_module("rlvr_jax.sandbox.zygote", run_name="__main__")
"""
_START_S = 60.0  # to start Python and import all modules that programs may import
_GRACE_S = 20.0  # after the time limit of a run, which the zygote enforces
_MAX_PACKET = 4096  # bytes
_MAX_PROGRAM, _MAX_TESTS = 100_000, 400_000  # characters
_NOT_ITS_OWN = (0, signal.SIGKILL)  # signals that the zygote itself ends programs with

_refusals_said: set[str] = set()


class SandboxError(RuntimeError):
    """Programs cannot be jailed on this machine, or the jail does not start."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits for one program: seconds of CPU and wall time, and mebibytes."""

    cpu_s: int
    wall_s: int
    memory_mb: int


class Run(NamedTuple):
    """A program, its tests, and the names of its functions that the tests call."""

    program: str
    tests: str
    functions: tuple[str, ...]


class RunResult(NamedTuple):
    """Whether the tests pass, and if not, why. None: the sandbox failed."""

    passed: bool | None
    reason: str = ""


class _Zygote:
    """The process that forks programs, and the socket to it."""

    def __init__(self, limits: Limits):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-P",
                        "-s",
                        "-S",
                        "-c",
                        _BOOTSTRAP,
                        str(_REPOSITORY),
                    ),
                    json.dumps(dataclasses.asdict(limits)),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the trainer to handle
                env=_environment(),
            )
        self.control.settimeout(_START_S)
        self._check()
        self.control.settimeout(limits.wall_s + _GRACE_S)

    def _check(self) -> None:
        """Reports missing walls. Raises SandboxError if a necessary one is missing."""
        try:
            state = self.receive()
        except OSError as error:
            code = self.stop()
            raise SandboxError(
                f"the jail for programs does not start (exit code {code})"
            ) from error
        if state["possible"]:
            self.stop()
            raise SandboxError(
                "the jail does not work on this machine: a program in it can "
                f"{', '.join(state['possible'])}"
            )
        for refusal in set(state["refused"]) - _refusals_said:
            _refusals_said.add(refusal)
            print(
                f"sandbox: this kernel refuses {refusal}; the filter of system calls "
                "still confines programs (docs/use/code.md)",
                file=sys.stderr,
            )

    def receive(self) -> Any:
        """Returns its next message. Raises OSError if it has ended or is silent."""
        data = self.control.recv(_MAX_PACKET)
        if not data:
            raise ConnectionResetError("the other end is closed")
        return json.loads(data)

    def stop(self) -> int:
        """Ends it with all processes that it started; returns its exit code."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=1.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


class _Job:
    """A run in progress, and our end of the socket to its tests."""

    def __init__(self, run: Run):
        self.run = run
        self._socket, self._theirs = socket.socketpair()

    def begin(self, zygote: _Zygote, number: int) -> None:
        """Lets the zygote start the run. Raises OSError if the zygote has ended."""
        with self._theirs:
            packet = json.dumps({"number": number}).encode()
            socket.send_fds(zygote.control, [packet], [self._theirs.fileno()])
        with contextlib.suppress(ConnectionError):  # its report has the reason
            send(self._socket.fileno(), self.run._asdict())

    def outcome(self, report: dict[str, Any], limits: Limits) -> RunResult:
        """Returns the result of the tests, or how their processes ended without one."""
        with self._socket:
            if report["timed_out"]:
                return RunResult(False, f"over the limit of {limits.wall_s} s")
            try:
                verdict = receive(self._socket.fileno())
            except (EOFError, MessageError, ConnectionError):
                verdict = {"passed": False, "reason": "the tests gave no verdict"}
        if verdict["passed"] is True:
            return RunResult(True)
        if report["signal"] == signal.SIGXCPU:
            return RunResult(False, f"over the limit of {limits.cpu_s} s of CPU")
        if report["signal"] not in _NOT_ITS_OWN:
            name = signal.Signals(report["signal"]).name
            return RunResult(False, f"the program ended by {name}")
        return RunResult(False, verdict["reason"])

    def close(self) -> None:
        """Forgets the run."""
        self._socket.close()
        self._theirs.close()


def _environment() -> dict[str, str]:
    """Returns the environment variables that Python needs. Programs do not see them.

    A fixed hash seed gives sets the same order in every run, so outcomes repeat.
    """
    kept = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
    return kept | {"PYTHONHASHSEED": "0"}


class Sandbox(Closing):
    """Runs programs against tests, `workers` at a time. Calls may come from any thread.

    The jail starts with the first run. If the kernel lacks a part of it, one line on
    standard error says so.
    """

    def __init__(self, limits: Limits, workers: int):
        self._limits = limits
        self._size = workers
        self._lock = threading.Lock()
        self._zygote: _Zygote | None = None
        self._number = 0

    def close(self) -> None:
        """Ends the jail and everything in it; a later run starts a new one."""
        with self._lock:
            self._stop()

    def run_all(self, runs: Sequence[Run]) -> list[RunResult]:
        """Returns the outcome of each run, in order. Equal runs run only once.

        Raises SandboxError if this machine cannot jail programs.
        """
        with self._lock:
            outcomes = {run: found for run in runs if (found := _refuse_length(run))}
            waiting = collections.deque(
                run for run in dict.fromkeys(runs) if run not in outcomes
            )
            while waiting:
                outcomes |= self._serve(waiting)
            return [outcomes[run] for run in runs]

    def _serve(self, waiting: collections.deque[Run]) -> dict[Run, RunResult]:
        """Runs all waiting runs, unless the zygote ends before that."""
        zygote = self._zygote = self._zygote or _start(self._limits)
        outcomes: dict[Run, RunResult] = {}
        active: dict[int, _Job] = {}
        try:
            while waiting or active:
                while waiting and len(active) < self._size:
                    self._number += 1
                    job = active[self._number] = _Job(waiting.popleft())
                    job.begin(zygote, self._number)
                report = zygote.receive()
                job = active.pop(report["number"])
                outcomes[job.run] = job.outcome(report, self._limits)
        except OSError as error:
            reason = f"the jail ended ({type(error).__name__})"
            outcomes |= {job.run: RunResult(None, reason) for job in active.values()}
            self._stop()
        except BaseException:  # an interrupt: else the next call would get its reports
            self._stop()
            raise
        finally:
            for job in active.values():
                job.close()
        return outcomes

    def _stop(self) -> None:
        if self._zygote is not None:
            self._zygote.stop()
            self._zygote = None


def _start(limits: Limits) -> _Zygote:
    if not system_calls.is_known_machine():
        raise SandboxError(
            "the jail for programs needs Linux on x86_64 or aarch64, but this is "
            f"{platform.system()} on {platform.machine()}; use another machine"
        )
    return _Zygote(limits)


def _refuse_length(run: Run) -> RunResult | None:
    """Returns the outcome of a run whose texts are too long to send, else None."""
    if len(run.tests) > _MAX_TESTS:
        return RunResult(None, f"tests with over {_MAX_TESTS} characters")
    if len(run.program) > _MAX_PROGRAM:
        return RunResult(False, f"a program with over {_MAX_PROGRAM} characters")
    return None
