"""What `run` and its workers say to each other: one JSON object a line.

`run` sends the job, then "repeat" or "end". A worker answers the job once it is warm,
each "repeat" with the parts of one more step, and "end" with its peak memory. A worker
computes only between a question and its answer, so sides can take turns.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

Job = TypeVar("Job")

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Channel:
    """The worker's end. Made first, it turns what libraries print to stderr."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def job(self, kind: type[Job]) -> Job:
        """Returns the work to do, a dataclass of this kind."""
        return kind(**json.loads(sys.stdin.readline()))

    def tell(self, facts: dict[str, Any]) -> None:
        """Answers the last question."""
        self._answers.write(json.dumps(facts) + "\n")
        self._answers.flush()

    def asked(self) -> bool:
        """Returns whether one more step is wanted, once that is known."""
        return sys.stdin.readline() == "repeat\n"


class Worker:
    """Our end: one side in a process of its own, warm once entered."""

    def __init__(self, command: Sequence[str], job: Any):
        self._command = command
        self._job = job

    def __enter__(self) -> Self:
        """Starts the process, and waits until it is warm."""
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.facts = self._ask(json.dumps(dataclasses.asdict(self._job)))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Lets the process go."""
        self._close()

    def repeat(self) -> dict[str, float]:
        """Returns the parts of one more step."""
        return self._ask("repeat")

    def end(self) -> dict[str, Any]:
        """Returns the worker's last words."""
        return self._ask("end")

    def _ask(self, question: str) -> dict[str, Any]:
        # Whether it died before or after the question, it leaves no answer.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            command = " ".join(self._command)
            raise RuntimeError(f"no answer from `{command}`; its words are above")
        return json.loads(answer)

    def _close(self) -> None:
        """Ends the process, which reads nothing more as "end"."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def peak_rss_bytes() -> int:
    """Returns the largest resident memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def environment() -> dict[str, str]:
    """Returns the same environment for every side.

    Huge pages for malloc help whoever walks over large arrays; a cache of compiled
    programs would hide what the first step costs.
    """
    environment = {
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore::FutureWarning",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        **os.environ,
    }
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    return environment
