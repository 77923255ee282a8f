"""Runs one part in a separate process, which may crash or be stopped."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.accelerator.parts import Part
from benchmarks.channel import ROOT
from job_jax.metrics import format_duration

_POLL_S = 0.2
_WORKER = ("-m", "benchmarks.accelerator.worker")
_LINE_S = 10.0  # between lines that say that a part is still running
_REASON_LENGTH = 300  # characters of a failure's last line


class Launcher:
    """Starts the worker of a part; its output goes to log.txt in the directory.

    Programs that JAX compiles are stored in `cache`. `worker` are Python's arguments.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        cache: pathlib.Path,
        flags: Sequence[str],
        say: Callable[[str], None],
        worker: Sequence[str] = _WORKER,
    ):
        self._log_path, self._cache = directory / "log.txt", cache
        self._flags, self._say, self._worker = flags, say, worker

    def __call__(self, part: Part, limit_s: float) -> dict[str, Any]:
        """Returns the part's record: done, failed, or stopped after the limit."""
        with (
            tempfile.TemporaryDirectory() as folder,
            self._log_path.open("ab") as log,
        ):
            log.write(f"\n==== {part.name}\n".encode())
            log.flush()
            start = log.tell()
            result = pathlib.Path(folder) / "result.json"
            code = self._run(part, limit_s, log=log, result=result)
            if code is None:
                return {"status": "stopped"}
            if code == 0:
                return {"status": "done", "result": json.loads(result.read_text())}
        return {"status": "failed", "reason": _reason(self._log_path, start, code)}

    def _run(
        self, part: Part, limit_s: float, *, log: Any, result: pathlib.Path
    ) -> int | None:
        """Returns the worker's exit code, or None if it was stopped."""
        start = last = time.monotonic()
        process = subprocess.Popen(
            [
                *(sys.executable, *self._worker),
                *(f"--part={part.name}", f"--result={result}", *self._flags),
                f"--seconds={limit_s:.0f}",
            ],
            cwd=ROOT,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        while process.poll() is None:
            now = time.monotonic()
            if now - start > limit_s:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None
            if now - last > _LINE_S:
                last = now
                self._say(f"    {part.name}: {format_duration(now - start)}")
            time.sleep(_POLL_S)
        return process.returncode

    def _environment(self) -> dict[str, str]:
        defaults = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92"}
        return {
            **defaults,
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(self._cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "PYTHONUNBUFFERED": "1",
        }


def _reason(log: pathlib.Path, start: int, code: int) -> str:
    """Returns the last line that a failed worker wrote, or its exit code."""
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "RESOURCE_EXHAUSTED" in line] or lines[-1:]
    told = errors[0][:_REASON_LENGTH] if errors else "no output"
    return f"exit code {code}: {told}"
