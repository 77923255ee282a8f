"""`python -m benchmarks.storm [--kills=N --full_disks=N --flips=N --answers=N]`.

Runs of a tiny recipe with every stage are killed at random instants, half of them while
a checkpoint is written, and robbed of their disk; each is let go on until it ends, and
what it leaves is compared with an undisturbed run, bit for bit. Bits are flipped in the
files of a finished run; hostile answers are graded. The schedule follows from --seed.

Exit code 0: nothing was lost. JSON lines: counts by kind. Full disks need the right to
mount one in memory (root). What a run said that ended wrongly is kept.
"""

import argparse
import collections
import json
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.storm import faults, flips
from benchmarks.storm.hostile import hostile_answers
from benchmarks.storm.job import Job, read_outcome
from rlvr_jax.verifiers.math import MathVerifier

_MAX_FAULTS_A_RUN = 12
_KINDS: dict[str, Callable[[faults.Site], faults.Struck]] = {
    "kill": faults.kill,
    "full_disk": faults.fill_disk,
}


class Tally:
    """What has happened so far. Shared by threads."""

    def __init__(self, todo: list[str], *, until: float):
        self._todo, self._until = todo, until
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def next_kind(self) -> str | None:
        """Returns the next fault of the schedule; None when there is no more time."""
        with self._lock:
            over = not self._todo or time.monotonic() > self._until
            return None if over else self._todo.pop()

    def add(self, kind: str, struck: faults.Struck) -> None:
        """Counts a fault; one that came too late goes back to the schedule."""
        with self._lock:
            if struck.place == faults.FINISHED:
                self._todo.append(kind)
                return
            self.counts[f"{kind}/{struck.place}"] += 1
            if struck.fault:
                self.wrong.append(f"{kind}: {struck.fault}")

    def end_run(self, lost: Sequence[str], workdir: Path) -> None:
        """Counts a run that has ended; `lost` names what differs."""
        with self._lock:
            self.counts["runs"] += 1
            if lost:
                self.wrong.append(f"{workdir}: other {', '.join(lost)}")
            struck = sum(n for kind, n in self.counts.items() if "/" in kind)
            seconds = time.monotonic() - self._start
            ahead = len(self._todo) * seconds / max(struck, 1)
            print(
                f"{struck} faults, {self.counts['runs']} runs, "
                f"{len(self.wrong)} wrong; {len(self._todo)} to come, "
                f"{ahead / 60:.0f} min",
                file=sys.stderr,
            )


def main(argv: Sequence[str]) -> int:
    """Prints what was survived; returns 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.storm", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--full_disks", type=int, default=100)
    parser.add_argument("--flips", type=int, default=200, help="in each kind of file")
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=60, help="of faults, at most")
    parser.add_argument("--at_once", type=int, default=2, help="runs beside each other")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", help="a folder that keeps compiled programs")
    asked = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    job = Job(
        Path(asked.programs).absolute() if asked.programs else folder / "programs"
    )
    for name in ("compiled", "undisturbed"):  # the first compiles: it takes longer
        began = time.monotonic()
        if job.start(folder / name, folder / f"{name}.err").wait():
            print((folder / f"{name}.err").read_text(), file=sys.stderr)
            return 1
        seconds = time.monotonic() - began
    print(json.dumps({"undisturbed_s": round(seconds, 1)}), flush=True)
    wrong = _strike(asked, job, folder, seconds)
    for kind, found in flips.flip_bits(
        folder / "undisturbed", asked.flips, seed=asked.seed
    ):
        print(
            json.dumps({"flips": kind, "of": asked.flips, "found": found}), flush=True
        )
        if found < asked.flips:
            wrong.append(f"{asked.flips - found} flipped bits in {kind} went unnoticed")
    if asked.answers:
        print(json.dumps(_grade(asked.answers, asked.seed)), flush=True)
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    if not wrong:
        shutil.rmtree(folder)
    return int(bool(wrong))


def _strike(
    asked: argparse.Namespace, job: Job, folder: Path, seconds: float
) -> list[str]:
    """Strikes runs as the schedule says; returns what was lost."""
    full_disks = asked.full_disks
    if full_disks and not faults.can_fill_disks(folder / "disk0"):
        print("no disk can be mounted here: none will be full", file=sys.stderr)
        full_disks = 0
    todo = ["kill"] * asked.kills + ["full_disk"] * full_disks
    random.Random(asked.seed).shuffle(todo)
    tally = Tally(todo, until=time.monotonic() + 60 * asked.minutes)
    expected = read_outcome(folder / "undisturbed")

    def work(number: int) -> None:
        rng = random.Random(f"{asked.seed} {number}")
        disk = folder / f"disk{number}"
        if full_disks:
            with faults.mounted(disk):
                _strike_runs(tally, job, disk, expected, seconds=seconds, rng=rng)
        else:
            disk.mkdir(exist_ok=True)
            _strike_runs(tally, job, disk, expected, seconds=seconds, rng=rng)

    with ThreadPoolExecutor(asked.at_once) as threads:
        list(threads.map(work, range(asked.at_once)))
    print(json.dumps(dict(sorted(tally.counts.items()))), flush=True)
    return tally.wrong


def _strike_runs(
    tally: Tally,
    job: Job,
    disk: Path,
    expected: Any,
    *,
    seconds: float,
    rng: random.Random,
) -> None:
    """Strikes one run after the other, a few times each, and lets each end."""
    kind: str | None = ""
    for run in range(10**9):
        workdir = disk / f"run{run}"
        for attempt in range(rng.randint(1, _MAX_FAULTS_A_RUN)):
            if (kind := tally.next_kind()) is None:
                break
            said = disk.with_name(f"{disk.name}-{run}-{attempt}.err")
            site = faults.Site(
                job=job, workdir=workdir, said=said, seconds=seconds, rng=rng
            )
            struck = _KINDS[kind](site)
            tally.add(kind, struck)
            if not struck.fault:
                said.unlink()
            if struck.place == faults.FINISHED:
                break
        said = disk.with_name(f"{disk.name}-{run}-end.err")
        if code := job.start(workdir, said).wait():
            tally.end_run([f"end, exit code {code}: {said}"], workdir)
        else:
            found = read_outcome(workdir)
            lost = [name for name in expected if found[name] != expected[name]]
            tally.end_run(lost, workdir)
            said.unlink()
        _remove(workdir)
        if kind is None:
            return


def _grade(count: int, seed: int) -> dict[str, Any]:
    """Returns how hostile answers were judged, how fast, and in how much memory."""
    began, statuses, slowest = time.monotonic(), collections.Counter[str](), 0.0
    with MathVerifier(workers=2, timeout_s=5.0) as pool:
        items = [("5", answer) for answer in hostile_answers(count, seed=seed)]
        last = began
        for verdict in pool.grade_each(items):
            statuses[verdict.status] += 1
            now = time.monotonic()
            slowest, last = max(slowest, now - last), now
    seconds = time.monotonic() - began
    memory_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "hostile_answers": count,
        **statuses,
        "answers_per_s": round(count / seconds, 1),
        "slowest_s": round(slowest, 2),
        "largest_child_mib": memory_kib // 1024,
    }


def _remove(workdir: Path) -> None:
    for path in sorted(workdir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    workdir.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
