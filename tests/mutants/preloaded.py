"""A process that has imported the libraries, and runs pytest in copies of itself.

    python -P preloaded.py LIBRARY...

Importing JAX and the other libraries takes longer than most tests. A copy (a fork) has
them already, and imports the program again. Requests and replies are lines of JSON on
stdin and stdout. A request has pytest's `arguments` and `limit_s`, in seconds. A reply
has pytest's exit `code` (124 past the limit), the `seconds`, and its output as `text`.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from typing import Any

_TIMEOUT, _NO_PYTEST = 124, 99


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # lets `_wait` clean up
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(_run(**json.loads(line))), flush=True)


def _run(arguments: list[str], limit_s: float) -> dict[str, Any]:
    """Returns how pytest ends; past the limit, kills it and everything it started."""
    with tempfile.TemporaryFile() as log:
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            for stream in (sys.stdout, sys.stderr):
                os.dup2(log.fileno(), stream.fileno())
            os._exit(_run_pytest(arguments))
        code = _wait(child, until=started + limit_s)
        seconds = time.monotonic() - started
        log.seek(0)
        text = log.read().decode(errors="replace")
    return {"code": code, "seconds": seconds, "text": text}


def _run_pytest(arguments: list[str]) -> int:
    import pytest  # noqa: PLC0415  one of the libraries

    try:
        return int(pytest.main(arguments))
    except BaseException as error:  # on any error this copy must end here
        print(f"pytest cannot run: {error!r}")
        return _NO_PYTEST
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _wait(child: int, *, until: float) -> int:
    """Returns a process's exit code, negative for a signal, and ends its group."""
    try:
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        return _TIMEOUT
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
