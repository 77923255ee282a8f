"""Verdicts on mathematics and numbers, from worker processes with a limit per item.

Sympy can take forever on one expression, inside a single C call that no signal can
interrupt. So the limit is enforced from outside: a worker that exceeds it is killed and
replaced, and other items are not affected. The answer is then incorrect, like one that
cannot be parsed. An unverified one would earn its group's mean, and a policy would
learn to write such answers. Only a plain number is unverified, because then the machine
was stuck. `math_worker` says how an answer is read.
"""

import collections
import dataclasses
import hashlib
import json
import math
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from job_jax.calls import Failure
from job_jax.closing import Closing
from rlvr_jax.types import AnswerFormat, Verdict, VerdictStatus
from rlvr_jax.verifiers import math_worker
from rlvr_jax.verifiers.answers.limits import MAX_COMPLETION_CHARACTERS
from rlvr_jax.verifiers.answers.numerals import parse_decimal
from rlvr_jax.verifiers.answers.statements import strip_delimiters

# Items per worker: one in work and one waiting, so that it never idles.
_MAX_QUEUED = 2
_START_LIMIT_S = 60.0  # importing sympy takes a second, or more on a busy machine
_MAX_REMEMBERED = 100_000  # answers that ended a worker
_MAX_FAILED_STARTS = 3  # in a row; after that, the installation must be broken
_WORKER_SCRIPT = Path(__file__).with_name("math_worker.py")
# Where the script finds `rlvr_jax.verifiers.answers`.
_PACKAGES = Path(__file__).parents[2]
_BOOTSTRAP = """
import runpy, sys
sys.path.append(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""


class Item(NamedTuple):
    """An answer to grade: the gold, where to look for the answer, and the verifier."""

    gold: str
    answer: str
    answer_format: AnswerFormat = "any"
    verifier: str = "math"  # or "numeric"


Items = Sequence[Item] | Sequence[tuple[str, str]]  # a pair uses the defaults


class _Batch:
    """The items of one call: a queue of waiting items, and verdicts on the others.

    `ended` has the verdicts on answers that ended a worker, in this call or an earlier
    one. `budget_s` is the total time for answers that exceed their limit. Both matter
    because a policy that writes a slow answer writes it G times, and again later.
    """

    def __init__(self, items: Items, ended: dict[bytes, Verdict], *, budget_s: float):
        self.items = items
        self.queue = collections.deque(range(len(items)))
        self.verdicts: dict[int, Verdict] = {}
        self._ended = ended
        self._budget_s = self.left_s = budget_s
        self._settle_untried()

    def next_request(self) -> tuple[int, bytes]:
        """Takes the first waiting item; returns its index and the worker's request."""
        index = self.queue.popleft()
        gold, answer, *how = self.items[index]
        request = json.dumps([gold, _truncate_answer(answer), *how])
        return index, request.encode() + b"\n"

    def settle_ended(self, index: int, verdict: Verdict) -> None:
        """Records the verdict on an item that ended its worker.

        A plain number is `unverified`, and may be tried again: the machine was stuck.
        """
        stated = self._read(index)
        if _is_number(stated):
            verdict = dataclasses.replace(verdict, status="unverified")
        if verdict.status == "incorrect":
            self._ended[self._digest(index, stated)] = verdict
            if len(self._ended) > _MAX_REMEMBERED:
                del self._ended[next(iter(self._ended))]
        self.verdicts[index] = verdict
        self._settle_untried()

    def _settle_untried(self) -> None:
        """Gives a verdict to waiting items that must not be tried."""
        if not self._ended:
            return
        waiting = list(self.queue)
        self.queue.clear()
        for index in waiting:
            if verdict := self._judge_untried(index):
                self.verdicts[index] = verdict
            else:
                self.queue.append(index)

    def _judge_untried(self, index: int) -> Verdict | None:
        stated = self._read(index)
        if before := self._ended.get(self._digest(index, stated)):
            return before
        if self.left_s > 0 or _is_number(stated):
            return None
        reason = f"answers of its batch took {self._budget_s:g} s over the time limit"
        return Verdict(status="unverified", reason=reason, failure="time_limit")

    def _read(self, index: int) -> str:
        item = Item(*self.items[index])
        return math_worker.read_answer(
            _truncate_answer(item.answer), item.answer_format
        )

    def _digest(self, index: int, stated: str) -> bytes:
        text = json.dumps([self.items[index][0], stated])
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


class _Worker:
    """A process, the socket to it, and its items, oldest first.

    `multiprocessing` does not work here: its children import the parent's main module,
    and JAX with it. `-P` keeps modules in the working folder from hiding the library's.
    """

    def __init__(self, timeout_s: float):
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        with theirs:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", _BOOTSTRAP),
                    *map(str, (_PACKAGES, _WORKER_SCRIPT, timeout_s)),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent to handle
                env=os.environ | {"PYTHONHASHSEED": "0"},  # sympy's order of terms
            )
        self.timeout_s = timeout_s
        self.ready = False
        self.items: collections.deque[int] = collections.deque()
        self.outbox = b""
        self.inbox = b""
        self.deadline = time.monotonic() + _START_LIMIT_S

    def enqueue(self, index: int, request: bytes) -> None:
        """Adds an item; its clock starts when the worker can begin it."""
        if self.ready and not self.items:
            self.deadline = time.monotonic() + self.timeout_s
        self.items.append(index)
        self.outbox += request

    def send(self) -> None:
        """Writes as much as the socket takes. `receive` notices a dead worker."""
        try:
            self.outbox = self.outbox[self.socket.send(self.outbox) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            self.outbox = b""

    def receive(self) -> list[bytes] | None:
        """Returns the lines that have arrived, None if the worker is dead."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not data:
            return None
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        self.deadline = time.monotonic() + self.timeout_s
        return lines

    def stop(self) -> int:
        """Kills the process if it still runs, and returns its exit code."""
        self.process.kill()
        self.socket.close()
        return self.process.wait()


class MathPool(Closing):
    """Grades items in worker processes, with verdicts in order even if workers die.

    Workers start with the first items and warm up in parallel. Calls may come from any
    thread and take turns.
    """

    def __init__(self, workers: int, timeout_s: float, overdue_s: float = math.inf):
        self._size = workers
        self._timeout_s = timeout_s
        self._overdue_s = overdue_s
        self._ended: dict[bytes, Verdict] = {}
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stops the workers; a later call starts new ones."""
        with self._lock:
            for worker in self._workers:
                worker.stop()
            self._workers.clear()

    def grade_all(self, items: Items) -> list[Verdict]:
        """Returns one verdict per item or (gold, answer) pair, in order."""
        return list(self.grade_each(items))

    def grade_each(self, items: Items) -> Generator[Verdict]:
        """Yields the verdicts of `grade_all`, each once all earlier ones are known.

        Other calls wait until the iterator is exhausted or closed.
        """
        with self._lock:
            batch = _Batch(items, self._ended, budget_s=self._overdue_s)
            try:
                for index in range(len(items)):
                    while index not in batch.verdicts:
                        self._dispatch(batch)
                        self._collect(batch)
                    yield _note_truncation(batch.verdicts.pop(index), items[index][1])
            finally:
                for worker in [w for w in self._workers if w.items]:
                    self._remove(worker)

    def _dispatch(self, batch: _Batch) -> None:
        """Gives items to workers, and starts as many workers as there is work for."""
        for worker in [w for w in self._workers if not w.items]:
            if worker.process.poll() is not None:  # died while idle: nothing was lost
                self._remove(worker)
        busy = sum(bool(worker.items) for worker in self._workers)
        while len(self._workers) < min(self._size, busy + len(batch.queue)):
            self._workers.append(_Worker(self._timeout_s))
        for depth in range(1, _MAX_QUEUED + 1):
            for worker in self._workers:
                if batch.queue and len(worker.items) < depth:
                    worker.enqueue(*batch.next_request())
        for worker in self._workers:
            worker.send()

    def _collect(self, batch: _Batch) -> None:
        """Waits until a worker answers, dies or is overdue, and records the result."""
        busy = [worker for worker in self._workers if worker.items]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                writing = selectors.EVENT_WRITE if worker.outbox else 0
                selector.register(worker.socket, selectors.EVENT_READ | writing)
            wait_s = min(worker.deadline for worker in busy) - time.monotonic()
            selector.select(max(0.0, wait_s))
        for worker in busy:
            lines = worker.receive()
            if lines is None:
                self._replace(worker, "worker died", batch, failure="error")
            elif not lines and time.monotonic() > worker.deadline:
                reason = f"time limit {self._timeout_s:g} s"
                self._replace(worker, reason, batch, failure="time_limit")
            for line in lines or ():
                if not worker.ready:
                    worker.ready = True
                    self._failed_starts = 0
                else:
                    status, reason, answer = json.loads(line)
                    batch.verdicts[worker.items.popleft()] = Verdict(
                        status=status, reason=reason, answer=answer
                    )

    def _replace(
        self, worker: _Worker, reason: str, batch: _Batch, *, failure: Failure
    ) -> None:
        """Drops a worker: the item in work gets a verdict, and the others queue again.

        If the worker was killed from outside, the answer is not to blame.
        """
        exit_code = self._remove(worker)
        in_work = worker.items.popleft() if worker.ready else None
        batch.queue.extendleft(reversed(worker.items))
        if in_work is not None:
            if failure == "time_limit":
                batch.left_s -= self._timeout_s / self._size
            was_killed = failure == "error" and exit_code == -signal.SIGKILL
            status: VerdictStatus = "unverified" if was_killed else "incorrect"
            verdict = Verdict(status=status, reason=reason, failure=failure)
            batch.settle_ended(in_work, verdict)
        else:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise RuntimeError(
                    f"the mathematics workers do not start (exit code {exit_code}); "
                    f"run `{sys.executable} -c 'import math_verify'` to see why"
                )

    def _remove(self, worker: _Worker) -> int:
        """Stops and forgets a worker, and returns its exit code."""
        self._workers.remove(worker)
        return worker.stop()


def _is_number(stated: str) -> bool:
    """Returns whether an answer is a plain number, which takes no time to grade."""
    return parse_decimal(strip_delimiters(stated)) is not None


def _truncate_answer(answer: str) -> str:
    """Returns the end of an answer that is read: whole words, no part of a number."""
    answer = answer.rstrip()
    end = answer[-MAX_COMPLETION_CHARACTERS:]
    within = len(answer) > len(end) and not answer[-len(end) - 1].isspace()
    return (re.split(r"\s", end, maxsplit=1)[1:] or [""])[0] if within else end


def _note_truncation(verdict: Verdict, answer: str) -> Verdict:
    """Returns the verdict, with a note if only the answer's end was read."""
    if len(answer.rstrip()) <= MAX_COMPLETION_CHARACTERS:
        return verdict
    cut = f"only the last {MAX_COMPLETION_CHARACTERS} characters were read"
    reason = f"{verdict.reason}; {cut}" if verdict.reason else cut
    return dataclasses.replace(verdict, reason=reason)
