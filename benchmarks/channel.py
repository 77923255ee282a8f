"""The protocol between `run` and its workers: one JSON object per line.

`run` sends the job, then "step" or "end". A worker answers the job when it is warm,
each "step" with the seconds that the parts of one more step took, and "end" with its
peak memory. A worker only computes between a question and its answer, so sides take
turns.
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
    """The worker's end; make it first, because it sends library output to stderr."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def receive_job(self, kind: type[Job]) -> Job:
        """Returns the job, a dataclass of type `kind`."""
        return kind(**json.loads(sys.stdin.readline()))

    def send(self, facts: dict[str, Any]) -> None:
        """Sends the answer to the last question."""
        self._answers.write(json.dumps(facts) + "\n")
        self._answers.flush()

    def wants_step(self) -> bool:
        """Waits for the next question and returns whether it is "step"."""
        return sys.stdin.readline() == "step\n"


class Worker:
    """The benchmark's end of one side: a process, which is warm after `__enter__`."""

    def __init__(self, command: Sequence[str], job: Any, *, cache: str | None = None):
        self._command = command
        self._job = job
        self._cache = cache

    def __enter__(self) -> Self:
        """Starts the process, and waits until it is warm."""
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=environment(self._cache),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        try:
            self.facts = self._request(json.dumps(dataclasses.asdict(self._job)))
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
        """Ends the process."""
        self._close()

    def step(self) -> dict[str, Any]:
        """Takes one more step; returns the seconds of its parts, and its tokens."""
        return self._request("step")

    def finish(self) -> dict[str, Any]:
        """Ends the work and returns the worker's peak memory and compilations."""
        return self._request("end")

    def _request(self, question: str) -> dict[str, Any]:
        # If it died before or after the question, there is no answer.
        with contextlib.suppress(BrokenPipeError):
            self._questions.write(question + "\n")
            self._questions.flush()
        answer = self._answers.readline()
        if not answer:
            command = " ".join(self._command)
            raise RuntimeError(f"no answer from `{command}`; its output is above")
        return json.loads(answer)

    def _close(self) -> None:
        """Ends the process, which treats the end of its input as "end"."""
        with contextlib.suppress(BrokenPipeError):
            self._questions.close()
        self._answers.close()
        self._process.wait()


def peak_rss_bytes() -> int:
    """Returns the largest resident memory that this process had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def environment(cache: str | None = None) -> dict[str, str]:
    """Returns the same environment for every side.

    Huge pages for malloc help every side that walks over large arrays. `cache` is where
    JAX stores compiled programs; None means nowhere, because the user's own cache would
    hide the cost of the first step.
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
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = cache
    return environment
