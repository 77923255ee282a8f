"""Measures every generator of reasoning-gym, and reports which cannot be trained on.

A worker process measures them, and is replaced if a generator hangs. A second process
with another hash seed makes the first problems again. They must be the same, because
the verifier remakes a problem to grade it.
"""

import dataclasses
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlvr_jax.tasks.reasoning_gym.audit_worker import Measured
from rlvr_jax.tasks.reasoning_gym.refused import NOT_RUN, REFUSED

_START_S = 120.0  # to import the library on a busy machine
_PATIENCE = 100  # a generator hangs after this many times the limit of a part
_MAX_CONSTANT = 0.9  # share of items that one answer may fit
_MAX_COPIED = 0.5  # share of items that may accept a line of their question
_MIN_ITEMS = 8  # within the time limit; a slower generator is too slow to train on


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A generator's measurements, and why it cannot be trained on; () if it can."""

    measured: Measured
    faults: tuple[str, ...]

    @property
    def name(self) -> str:
        """Returns the generator's name."""
        return self.measured.name


def audit(
    names: Sequence[str],
    *,
    num_items: int,
    limit_s: float,
    on_row: Callable[[Row], None],
) -> list[Row]:
    """Returns a row for each name, and passes each to `on_row` when it is complete."""
    request = {"items": num_items, "limit_s": limit_s}
    measured = _measure_all(names, request, hash_seed=1)
    again = _measure_all(names, request | {"again": True}, hash_seed=2)
    rows = []
    for first, second in zip(measured, again, strict=True):
        rows.append(Row(measured=first, faults=find_faults(first, second)))
        on_row(rows[-1])
    return rows


def find_faults(measured: Measured, again: Measured) -> tuple[str, ...]:
    """Returns the reasons not to train on a generator, from both measurements of it."""
    if measured.error:
        return (measured.error,)
    faults = []
    if measured.num_items < _MIN_ITEMS:
        faults.append(f"a problem takes {measured.item_s:.1f} s to make")
    if measured.digests != again.digests:
        faults.append("another process makes other problems in the same places")
    if measured.no_gold < 1 and measured.own_gold < 1:
        share = 1 - measured.own_gold
        faults.append(f"rejects its own answer to {share:.0%} of its problems")
    if measured.nonsense:
        faults.append(f"accepts nonsense, such as {measured.nonsense[0]!r}")
    elif measured.copied > _MAX_COPIED:
        faults.append(
            f"accepts a line of its own question for {measured.copied:.0%} of them"
        )
    elif measured.constant > _MAX_CONSTANT:
        faults.append(
            f"one answer, {measured.best_constant!r:.40}, fits {measured.constant:.0%} "
            "of its problems"
        )
    return tuple(faults)


def find_disagreements(rows: Sequence[Row]) -> list[str]:
    """Returns a line for each generator that should be refused, or should not be.

    A generator that must not be run has no row.
    """
    lines = []
    for row in rows:
        if row.faults and row.name not in REFUSED:
            lines.append(f"{row.name} is not refused: {'; '.join(row.faults)}")
        if not row.faults and row.name in REFUSED:
            lines.append(f"{row.name} is refused, but has no fault")
    return lines


def auditable(names: Sequence[str]) -> list[str]:
    """Returns the names without generators that must not be run."""
    return [name for name in names if name not in NOT_RUN]


def _measure_all(
    names: Sequence[str], request: dict[str, Any], *, hash_seed: int
) -> Iterator[Measured]:
    """Yields a measurement for each name; kills and replaces a worker that hangs."""
    request = {"again": False} | request
    left = list(names)
    while left:
        worker = _start_worker(request | {"names": left}, hash_seed)
        limit_s = _START_S
        try:
            while left:
                line = _read_line(worker, limit_s + _PATIENCE * request["limit_s"])
                name = left.pop(0)
                if not line:
                    yield Measured(name=name, error="it hangs, or ends its process")
                    break
                yield Measured(**_with_tuples(json.loads(line)))
                limit_s = 0.0
        finally:
            worker.kill()
            worker.communicate()


def _start_worker(request: dict[str, Any], hash_seed: int) -> subprocess.Popen[bytes]:
    module = "rlvr_jax.tasks.reasoning_gym.audit_worker"
    return subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(request)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        bufsize=0,  # so that `select` sees every unread line
    )


def _read_line(worker: subprocess.Popen[bytes], limit_s: float) -> bytes:
    """Returns the worker's next line, b"" if it is silent for too long or has ended."""
    assert worker.stdout is not None
    ready, _, _ = select.select([worker.stdout], [], [], limit_s)
    return worker.stdout.readline() if ready else b""


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in fields.items()
    }
