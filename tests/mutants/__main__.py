"""Changes one line of the program at a time, and checks that the tests notice.

    python -m tests.mutants [--sample=N [--seed=M]] [--area=AREA] [--only=NAME]
                            [--jobs=N] [--list]

Every row of a mutants.py under tests/ changes one line of the program. Each is made by
itself in a copy of the tree, and the tests named in the row must then fail. They must
pass without it, which is tried first: a test that always fails would kill everything.

`--sample` tries N rows, at least one of each area where N allows. Rows whose tests all
wait for launch/test.sh --all are left out. The seed is that of the commit, unless it is
given. `--area` keeps the rows of one folder of tests, `--only` those whose name
contains NAME, or one of several if it is repeated.

Exit code 0: all are killed; 1: some lived; 2: there is no such mutant.
"""

import argparse
import concurrent.futures
import os
import pathlib
import queue
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from tests.mutants.discovery import mutants_by_area
from tests.mutants.mutant import Mutant
from tests.mutants.sampling import (
    commit_seed,
    draw_sample,
    has_slow_tests,
    is_everyday,
    slow_lines,
)
from tests.mutants.trial import (
    EVERYDAY,
    ROOT,
    Outcome,
    copy_tree,
    run_tests,
    seconds_by_file,
    try_mutant,
)

_BASELINE_LIMIT_S = 3600
_LEAST_LIMIT_S, _LIMIT_FACTOR = 120, 4  # of a mutant, compared with its tests' time


def main() -> int:
    """Returns the exit code."""
    args = _parse_arguments()
    areas = {
        area: [
            row for row in rows if any(name in row.name for name in args.only or [""])
        ]
        for area, rows in mutants_by_area().items()
        if args.area in ("", area)
    }
    if args.sample:
        seed = commit_seed() if args.seed is None else args.seed
        print(f"a sample of {args.sample} mutants, seed {seed}")
        areas = _sample(areas, args.sample, seed=seed)
    chosen = [mutant for rows in areas.values() for mutant in rows]
    if not chosen:
        print("error: no mutant has such a name and area; --list shows all")
        return 2
    for mutant in chosen:
        mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8"))
    if args.list:
        print("\n".join(map(str, chosen)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        jobs = min(args.jobs, len(chosen))
        trees = [copy_tree(pathlib.Path(folder) / str(n)) for n in range(jobs)]
        report = pathlib.Path(folder) / "report.xml"
        whole = _run_unmutated(chosen, trees[0], report=report, jobs=args.jobs)
        if not whole.passed:
            print(f"{whole.text}\nerror: the tests fail without any mutant")
            return 1
        print(f"without a mutant the tests pass in {whole.seconds:.0f} s", flush=True)
        lived = _try_all(chosen, trees, seconds_by_file(report))
    _print_summary(areas, lived)
    return int(bool(lived))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cores = min(os.cpu_count() or 1, 8)
    parser.add_argument("--jobs", type=int, default=cores, help="mutants tried at once")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    parser.add_argument("--only", action="append", help="if the name contains this")
    parser.add_argument("--area", default="", help="mutants of this folder of tests")
    parser.add_argument("--sample", type=int, default=0, help="try so many mutants")
    parser.add_argument("--seed", type=int, help="of the sample; default: the commit's")
    return parser.parse_args()


def _sample(
    areas: Mapping[str, Sequence[Mutant]], count: int, *, seed: int
) -> dict[str, list[Mutant]]:
    """Returns the sampled mutants by area."""
    slow = slow_lines()
    everyday = {
        area: [mutant for mutant in rows if is_everyday(mutant, slow)]
        for area, rows in areas.items()
    }
    sampled = draw_sample(everyday, count, seed=seed)
    return {
        area: [mutant for mutant in rows if mutant in sampled]
        for area, rows in everyday.items()
    }


def _run_unmutated(
    chosen: Sequence[Mutant], tree: pathlib.Path, *, report: pathlib.Path, jobs: int
) -> Outcome:
    """Returns how the everyday tests of all rows end, and reports their times."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    options = [f"--junitxml={report}"]
    if jobs > 1:
        options += [f"--numprocesses={jobs}", "--dist=loadfile"]
    return run_tests(tree, tests, EVERYDAY, limit_s=_BASELINE_LIMIT_S, options=options)


def _try_all(
    chosen: Sequence[Mutant],
    trees: Sequence[pathlib.Path],
    seconds: Mapping[str, float],
) -> list[Mutant]:
    """Returns the mutants that lived, each tried in a tree that is free.

    The longest come first, so that no worker starts one when the others are done.
    """
    slow, started = slow_lines(), time.monotonic()
    free: queue.Queue[pathlib.Path] = queue.Queue()
    for tree in trees:
        free.put(tree)
    times = {
        mutant: sum(seconds.get(test.split("::")[0], 0.0) for test in mutant.tests)
        for mutant in chosen
    }

    def attempt(mutant: Mutant) -> Outcome:
        tree = free.get()
        limit_s = _LEAST_LIMIT_S + _LIMIT_FACTOR * times[mutant]
        more = has_slow_tests(mutant, slow)
        try:
            outcome = try_mutant(mutant, tree, limit_s=limit_s, has_slow_tests=more)
            if outcome.code < 0:  # by a signal: XLA gave up, whatever the mutant
                outcome = try_mutant(mutant, tree, limit_s=limit_s, has_slow_tests=more)
        finally:
            free.put(tree)
        return outcome

    lived = []
    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        longest_first = sorted(chosen, key=lambda mutant: -times[mutant])
        futures = {pool.submit(attempt, mutant): mutant for mutant in longest_first}
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            mutant, outcome = futures[future], future.result()
            if not outcome.is_kill:
                lived.append(mutant)
            left_s = (time.monotonic() - started) / done * (len(chosen) - done)
            word = "killed" if outcome.is_kill else f"LIVED ({outcome.code})"
            print(
                f"{done}/{len(chosen)}, {left_s / 60:.0f} min left: {word} in "
                f"{outcome.seconds:.0f} s: {mutant}",
                flush=True,
            )
    return lived


def _print_summary(
    areas: Mapping[str, Sequence[Mutant]], lived: Sequence[Mutant]
) -> None:
    """Prints how many were killed and how many lived, by area."""
    print(f"{'area':14} killed  lived")
    for area, rows in areas.items():
        alive = sum(mutant in lived for mutant in rows)
        if rows:
            print(f"{area:14} {len(rows) - alive:6} {alive:6}")
    total = sum(map(len, areas.values()))
    print(f"{'all':14} {total - len(lived):6} {len(lived):6}")
    for mutant in lived:
        print(f"lived: {mutant}")


if __name__ == "__main__":
    sys.exit(main())
