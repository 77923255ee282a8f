"""`python -m benchmarks.storm [--kills=N --full_disks=N --bad_disks=N ...]`.

Runs of a tiny recipe with every stage are killed at random times (half of them while a
checkpoint is written), or their disk fills up or fails. Each run is resumed until it
ends, and its results are compared bit for bit with an undisturbed run. Then one of the
2 or 4 processes of a run is killed, and another number of processes resumes the run.
Bits are flipped in the files of a finished run, and hostile answers are graded. The
schedule depends on --seed.

Exit code 0: nothing was lost. Prints counts by kind as JSON lines. Full disks need the
right to mount one in memory (root), and bad disks need a C compiler. The output of runs
that ended wrongly is kept.
"""

import argparse
import collections
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.storm import faults, flips
from benchmarks.storm.hostile import hostile_answers
from benchmarks.storm.job import Job
from benchmarks.storm.trial import RunError, run_alone, run_together, strike
from rlvr_jax.verifiers.math_pool import MathPool

_DEVICES = 4  # of the runs that lose a process


def main(argv: Sequence[str]) -> int:
    """Prints counts of survived faults; returns 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.storm", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--full_disks", type=int, default=100)
    parser.add_argument("--bad_disks", type=int, default=50, help="failing with EIO")
    parser.add_argument(
        "--deaths", type=int, default=20, help="of one of 2 or 4 processes"
    )
    parser.add_argument("--flips", type=int, default=200, help="per kind of file")
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument(
        "--minutes", type=float, default=60, help="limit; deaths get as much again"
    )
    parser.add_argument(
        "--at_once", type=int, default=2, help="runs of one process in parallel"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", help="folder for compiled programs")
    asked = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    programs = Path(asked.programs or folder / "programs").absolute()
    try:
        wrong = _strike_all(asked, folder, programs)
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    for kind, found in flips.flip_bits(
        folder / "undisturbed", asked.flips, seed=asked.seed
    ):
        _tell({"flips": kind, "of": asked.flips, "found": found})
        if found < asked.flips:
            wrong.append(f"{asked.flips - found} flipped bits in {kind} went unnoticed")
    if asked.answers:
        _tell(_grade(asked.answers, asked.seed))
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    if not wrong:
        shutil.rmtree(folder)
    return int(bool(wrong))


def _strike_all(asked: argparse.Namespace, folder: Path, programs: Path) -> list[str]:
    """Hits runs of one process, then of several; returns a list of the losses."""
    kinds = {
        "kill": asked.kills,
        "full_disk": asked.full_disks,
        "bad_disk": asked.bad_disks,
    }
    if asked.full_disks and not faults.can_fill_disks(folder / "disk"):
        print("cannot mount a disk here: skipping full disks", file=sys.stderr)
        del kinds["full_disk"]
    if asked.bad_disks and not faults.compile_bad_disk(folder):
        print("no C compiler for bad_disk.so: skipping bad disks", file=sys.stderr)
        del kinds["bad_disk"]
    how = {"minutes": asked.minutes, "seed": asked.seed}
    trials = [(run_alone(Job(programs), folder), kinds, asked.at_once)]
    if asked.deaths:
        together = run_together(Job(programs, devices=_DEVICES), folder / "several")
        trials.append((together, {"death": asked.deaths}, 1))
    wrong = []
    for trial, faults_of_it, at_once in trials:
        _tell({"undisturbed_s": round(trial.seconds, 1)})
        tally = strike(trial, faults_of_it, at_once=at_once, **how)
        _tell(dict(sorted(tally.counts.items())))
        wrong += tally.wrong
    return wrong


def _tell(line: Mapping[str, object]) -> None:
    print(json.dumps(line), flush=True)


def _grade(count: int, seed: int) -> dict[str, Any]:
    """Returns verdicts, speed and memory of grading hostile answers."""
    began, statuses, slowest = time.monotonic(), collections.Counter[str](), 0.0
    with MathPool(workers=2, timeout_s=5.0) as pool:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
