"""Changes one line of the program at a time, and checks that the tests notice.

    python -m tests.mutants [--sample=N [--seed=M]] [--area=AREA] [--only=NAME]
                            [--jobs=N] [--list]

Every row of a mutants*.py under tests/ changes one line of the program. Each change is
made alone in a copy of the tree, and the tests that the row names must then fail. They
are first run without it and must pass: a test that always fails would kill everything.

`--sample` tries N rows, at least one of each area if N allows. It leaves out rows whose
tests all wait for launch/test.sh --all. The seed comes from the commit by default.
`--area` keeps the rows of one folder of tests. `--only` keeps rows whose name contains
NAME; it may be repeated.

Exit code 0: all are killed; 1: some lived; 2: no mutant matches.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

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
    Runner,
    copy_tree,
    try_mutant,
)

Item = TypeVar("Item")

_UNMUTATED_LIMIT_S = 900
# limit of a mutant: at least, and times its tests
_LEAST_LIMIT_S, _LIMIT_FACTOR = 60, 4


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
        print("error: no mutant matches this name and area; --list shows all")
        return 2
    for mutant in chosen:
        mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8"))
    if args.list:
        print("\n".join(map(str, chosen)))
        return 0
    with _open_runners(min(args.jobs, len(chosen))) as runners:
        seconds, failed = _run_unmutated(chosen, runners)
        if failed:
            print("\n".join(failed), "error: tests fail without any mutant", sep="\n")
            return 1
        lived = _try_all(chosen, runners, seconds)
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


@contextlib.contextmanager
def _open_runners(count: int) -> Iterator[list[Runner]]:
    """Yields runners, each in a copy of the tree."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.ExitStack() as stack,
    ):
        trees = [copy_tree(pathlib.Path(folder) / str(n)) for n in range(count)]
        yield [stack.enter_context(Runner(tree)) for tree in trees]


def _run_unmutated(
    chosen: Sequence[Mutant], runners: Sequence[Runner]
) -> tuple[dict[str, float], list[str]]:
    """Returns the seconds of each test that a row names, and the tests that fail.

    Only everyday tests run here: a slow test is tried only after it has killed a
    mutant.
    """
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    print(f"first {len(tests)} files of tests without a mutant", flush=True)
    outcomes = _run_each(
        lambda runner, test: runner.run([test], EVERYDAY, limit_s=_UNMUTATED_LIMIT_S),
        tests,
        runners,
        describe=lambda test, outcome: f"{test} took {outcome.seconds:.0f} s",
    )
    failed = [
        f"{outcome.text}\n{test} ended with {outcome.code}"
        for test, outcome in outcomes.items()
        if not outcome.passed
    ]
    return {test: outcome.seconds for test, outcome in outcomes.items()}, failed


def _try_all(
    chosen: Sequence[Mutant], runners: Sequence[Runner], seconds: Mapping[str, float]
) -> list[Mutant]:
    """Returns the mutants that lived.

    The longest come first, because a long one that starts last would leave workers
    idle.
    """
    slow = slow_lines()
    times = {row: sum(seconds[test] for test in row.tests) for row in chosen}

    def attempt(runner: Runner, mutant: Mutant) -> Outcome:
        limit_s = _LEAST_LIMIT_S + _LIMIT_FACTOR * times[mutant]
        more = has_slow_tests(mutant, slow)
        for _ in range(2):
            outcome = try_mutant(mutant, runner, limit_s=limit_s, has_slow_tests=more)
            if outcome.code >= 0:  # negative: XLA gave up, for any mutant
                break
        return outcome

    def describe(mutant: Mutant, outcome: Outcome) -> str:
        word = "killed" if outcome.is_kill else f"LIVED ({outcome.code})"
        return f"{word} in {outcome.seconds:.0f} s: {mutant}"

    longest_first = sorted(chosen, key=lambda mutant: -times[mutant])
    outcomes = _run_each(attempt, longest_first, runners, describe=describe)
    return [mutant for mutant in chosen if not outcomes[mutant].is_kill]


def _run_each(
    attempt: Callable[[Runner, Item], Outcome],
    items: Sequence[Item],
    runners: Sequence[Runner],
    *,
    describe: Callable[[Item, Outcome], str],
) -> dict[Item, Outcome]:
    """Returns each item's outcome; prints a line for each, with the minutes left."""
    started, outcomes = time.monotonic(), {}
    free: queue.Queue[Runner] = queue.Queue()
    for runner in runners:
        free.put(runner)

    def attempt_with_free_runner(item: Item) -> Outcome:
        runner = free.get()
        try:
            return attempt(runner, item)
        finally:
            free.put(runner)

    with concurrent.futures.ThreadPoolExecutor(len(runners)) as pool:
        futures = {pool.submit(attempt_with_free_runner, item): item for item in items}
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            item = futures[future]
            outcomes[item] = future.result()
            left_s = (time.monotonic() - started) / done * (len(items) - done)
            text = describe(item, outcomes[item])
            print(
                f"{done}/{len(items)}, {left_s / 60:.0f} min left: {text}", flush=True
            )
    return outcomes


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
