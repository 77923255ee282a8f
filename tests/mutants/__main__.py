"""Changes one line of the program at a time, and asks whether the tests notice.

    python -m tests.mutants [--jobs=N] [--only=NAME] [--list]

Every row of a mutants.py under tests/ changes one line of the program. Each is made by
itself in a copy of the tree, and the tests named in the row must then fail. They must
pass without it, which is tried first: a test that always fails would kill everything.
`--only` keeps the mutants whose name contains NAME. Exit code 0: all are killed;
1: some lived; 2: there is none of that name.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import time

from tests.mutants.discovery import mutants_by_area
from tests.mutants.mutant import Mutant

ROOT = pathlib.Path(__file__).parents[2]
_LIMIT_S = 900


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How the tests ended: `code` is pytest's, or 124 where they ran past the limit."""

    code: int
    seconds: float
    text: str


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="mutants at work at once")
    parser.add_argument("--list", action="store_true", help="names them and ends")
    parser.add_argument("--only", default="", help="mutants whose name holds this")
    args = parser.parse_args()
    mutants = [mutant for area in mutants_by_area().values() for mutant in area]
    chosen = [mutant for mutant in mutants if args.only in mutant.name]
    if not chosen:
        print(f"error: no mutant's name holds {args.only!r}; --list shows them")
        return 2
    for mutant in chosen:
        mutant.applied((ROOT / mutant.file).read_text())
    if args.list:
        print("\n".join(map(str, chosen)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        trees = [_copy(pathlib.Path(folder) / str(n)) for n in range(args.jobs)]
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        whole = _run(trees[0], tests)
        if whole.code:
            print(f"{whole.text}\nerror: the tests fail without any mutant")
            return 1
        print(f"the {len(tests)} tests pass in {whole.seconds:.0f} s", flush=True)
        lived = _try_all(chosen, trees)
    print(f"{len(chosen) - len(lived)} of {len(chosen)} mutants killed")
    return int(bool(lived))


def _try_all(chosen: list[Mutant], trees: list[pathlib.Path]) -> list[Mutant]:
    """Returns the mutants that lived, each tried in a tree that is free."""
    free: queue.Queue[pathlib.Path] = queue.Queue()
    for tree in trees:
        free.put(tree)

    def attempt(mutant: Mutant) -> bool:
        tree = free.get()
        try:
            outcome = _with(mutant, tree)
            if outcome.code < 0:  # by a signal: XLA gave up, whatever the mutant
                outcome = _with(mutant, tree)
        finally:
            free.put(tree)
        killed = outcome.code == 1  # any other: a crash, a limit, tests not run
        word = "killed" if killed else f"LIVED ({outcome.code})"
        print(f"{word:7} {outcome.seconds:5.0f} s  {mutant}", flush=True)
        return killed

    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        killed = list(pool.map(attempt, chosen))
    return [m for m, done in zip(chosen, killed, strict=True) if not done]


def _copy(target: pathlib.Path) -> pathlib.Path:
    """Returns a copy of what git knows or would add, as it stands now."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def _with(mutant: Mutant, tree: pathlib.Path) -> Outcome:
    path = tree / mutant.file
    before = path.read_text()
    path.write_text(mutant.applied(before))
    try:
        return _run(tree, mutant.tests)
    finally:
        path.write_text(before)


def _run(tree: pathlib.Path, tests: tuple[str, ...] | list[str]) -> Outcome:
    """Returns how the tests end in a tree, slow ones included."""
    marks = "not live and not gpu"
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-m", marks, *tests],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
            # Files change within a second and keep their size: no .pyc is trusted.
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)},
        )
    except subprocess.TimeoutExpired as error:
        return Outcome(124, time.monotonic() - started, str(error.stdout))
    text = done.stdout + done.stderr
    return Outcome(done.returncode, time.monotonic() - started, text)


if __name__ == "__main__":
    sys.exit(main())
