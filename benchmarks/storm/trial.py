"""Hits runs with a schedule of faults, and compares them with an undisturbed run."""

import collections
import contextlib
import dataclasses
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
from typing import Any

from benchmarks.storm import faults
from benchmarks.storm.job import Job, find_differences, read_outcome

_MAX_FAULTS_A_RUN = 12
_KINDS: dict[str, Callable[[faults.Site], faults.Struck]] = {
    "kill": faults.kill,
    "full_disk": faults.fill_disk,
    "bad_disk": faults.break_disk,
    "death": faults.kill_one_of_several,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A job, and the outcome and seconds of an undisturbed run."""

    job: Job
    folder: Path
    seconds: float
    expected: Mapping[str, Any]
    is_exact: bool = True  # whether a resumed run gives the same bits


class RunError(RuntimeError):
    """An undisturbed run failed."""


def run_alone(job: Job, folder: Path) -> Trial:
    """Returns the trial of a job with one process. Raises RunError."""
    for name in ("compiled", "undisturbed"):  # the first takes longer: it compiles
        began, said = time.monotonic(), folder / f"{name}.err"
        if job.start(folder / name, said).wait():
            raise RunError(said.read_text())
    return Trial(
        job=job,
        folder=folder,
        seconds=time.monotonic() - began,
        expected=read_outcome(folder / "undisturbed"),
    )


def run_together(job: Job, folder: Path) -> Trial:
    """Returns the trial of a job with several processes; it is timed with two.

    Raises RunError, also if two processes have another outcome than one.
    """
    folder.mkdir()
    alone = job.start(folder / "alone", folder / "alone.err")
    if alone.wait():
        raise RunError((folder / "alone.err").read_text())
    expected = read_outcome(folder / "alone")
    began, said = time.monotonic(), [folder / f"two.err{n}" for n in range(2)]
    if set(map(Popen.wait, job.start_several(folder / "two", said))) != {0}:
        raise RunError("\n".join(file.read_text() for file in said))
    seconds = time.monotonic() - began
    found = read_outcome(folder / "two")
    if differ := find_differences(expected, found, is_exact=False):
        raise RunError(f"two processes give other {', '.join(differ)} than one")
    return Trial(
        job=job, folder=folder, seconds=seconds, expected=expected, is_exact=False
    )


class Tally:
    """The schedule, and counts of faults and runs so far. Shared by threads."""

    def __init__(self, todo: list[str], *, until: float):
        self._todo, self._until = todo, until
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def next_kind(self) -> str | None:
        """Returns the next fault of the schedule, None at its end or out of time."""
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
        """Counts a run that has ended; `lost` names the parts that differ."""
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


def strike(
    trial: Trial, kinds: Mapping[str, int], *, minutes: float, seed: int, at_once: int
) -> Tally:
    """Hits runs with the given number of faults of each kind, and returns the tally."""
    todo = [kind for kind, count in kinds.items() for _ in range(count)]
    random.Random(seed).shuffle(todo)
    tally = Tally(todo, until=time.monotonic() + 60 * minutes)

    def work(number: int) -> None:
        disk = trial.folder / f"disk{number}"
        disk.mkdir()
        # Only a small disk that is mounted for this is ever filled.
        fills = kinds.get("full_disk", 0) > 0
        with faults.mounted(disk) if fills else contextlib.nullcontext():
            _strike_runs(trial, tally, disk, random.Random(f"{seed} {number}"))

    if todo:
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(work, range(at_once)))
    return tally


def _strike_runs(trial: Trial, tally: Tally, disk: Path, rng: random.Random) -> None:
    """Hits one run after the other, a few times each, and then lets it finish."""
    kind: str | None = ""
    for run in range(10**9):
        workdir = disk / f"run{run}"
        for attempt in range(rng.randint(1, _MAX_FAULTS_A_RUN)):
            if (kind := tally.next_kind()) is None:
                break
            said = disk.with_name(f"{disk.name}-{run}-{attempt}.err")
            site = faults.Site(
                job=trial.job,
                workdir=workdir,
                said=said,
                seconds=trial.seconds,
                rng=rng,
            )
            struck = _KINDS[kind](site)
            tally.add(kind, struck)
            if not struck.fault:
                said.unlink(missing_ok=True)
            if struck.place == faults.FINISHED:
                break
        said = disk.with_name(f"{disk.name}-{run}-end.err")
        if code := trial.job.start(workdir, said).wait():
            tally.end_run([f"end, exit code {code}: {said}"], workdir)
        else:
            found = read_outcome(workdir)
            lost = find_differences(trial.expected, found, is_exact=trial.is_exact)
            tally.end_run(lost, workdir)
            said.unlink()
        _remove(workdir)
        if kind is None:
            return


def _remove(workdir: Path) -> None:
    for path in sorted(workdir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    workdir.rmdir()
