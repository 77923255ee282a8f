"""Several processes as one run, started on this machine."""

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.command import ROOT

AT_MOST_S = 600  # for a machine that does ten other things


@dataclasses.dataclass(frozen=True)
class Processes:
    """Processes of one run. Only the first one's progress is read while it runs."""

    all: list[subprocess.Popen[str]]
    logs: list[Path]

    def wait_for(self, line: str) -> None:
        """Waits until the first process prints a line with this beginning."""
        assert self.all[0].stderr is not None
        seen = []
        for text in self.all[0].stderr:
            seen.append(text)
            if text.startswith(line):
                return
        pytest.fail(f"no line {line!r} in\n{''.join(seen)}")

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Waits until it is true; checks after each line of the first process."""
        assert self.all[0].stderr is not None
        seen = []
        for text in self.all[0].stderr:
            seen.append(text)
            if is_so():
                return
        pytest.fail(f"it ended before\n{''.join(seen)}")

    def ends(self) -> tuple[list[int], list[str]]:
        """Returns exit codes and stderr, once all have ended."""
        _, said = self.all[0].communicate(timeout=AT_MOST_S)
        codes = [each.wait(timeout=AT_MOST_S) for each in self.all]
        return codes, [said, *(log.read_text() for log in self.logs[1:])]


def environment(cache: Path) -> dict[str, str]:
    """Returns an environment for fast compilation instead of fast programs."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true",
        "PYTHON": sys.executable,
    }


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


@contextlib.contextmanager
def started(
    command,
    folder: Path,
    *arguments: list[str],
    hosts: Sequence[Mapping[str, str]] = (),
    module: str = "rlvr_jax.main",
) -> Iterator[Processes]:
    """Yields a process for each list of arguments; kills those that are left.

    `hosts` are further environment variables of each.
    """
    known = environment(command.cache) | {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{_free_port()}",
        "JAX_NUM_PROCESSES": str(len(arguments)),
    }
    logs = [folder / f"process{i}.log" for i in range(len(arguments))]
    files = [log.open("w") for log in logs]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *own],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if i == 0 else files[i],
            text=True,
            env=known | {"JAX_PROCESS_ID": str(i), **(hosts[i] if hosts else {})},
        )
        for i, own in enumerate(arguments)
    ]
    try:
        yield Processes(processes, logs)
    finally:
        for process, file in zip(processes, files, strict=True):
            process.kill()
            process.wait()
            file.close()
        processes[0].stderr.close()
