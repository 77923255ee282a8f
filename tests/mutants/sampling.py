"""Chooses the mutants of a sample: some of every area, different at every commit."""

import pathlib
import random
import subprocess
from collections.abc import Mapping, Sequence

from tests.mutants.mutant import Mutant

_ROOT = pathlib.Path(__file__).parents[2]


def draw_sample(
    areas: Mapping[str, Sequence[Mutant]], count: int, *, seed: int
) -> list[Mutant]:
    """Returns `count` mutants, or all if there are fewer; a seed fixes which.

    Every area gives one mutant, and all others have the same chance of the remaining
    places. With fewer places than areas, the areas are drawn too.
    """
    rng = random.Random(seed)
    first = [rng.choice(rows) for rows in areas.values() if rows]
    if len(first) >= count:
        return rng.sample(first, count)
    left = [row for rows in areas.values() for row in rows if row not in first]
    return first + rng.sample(left, min(count - len(first), len(left)))


def is_everyday(mutant: Mutant, slow: Sequence[str]) -> bool:
    """Returns whether a named test runs without --all; `slow` is slow.txt's lines."""
    beginnings = tuple(f"tests/{line}" for line in slow)
    return any(not test.startswith(beginnings) for test in mutant.tests)


def has_slow_tests(mutant: Mutant, slow: Sequence[str]) -> bool:
    """Returns whether a named test, or a part of a named file, runs only in --all."""
    files = {test.split("::")[0] for test in mutant.tests}
    return any(f"tests/{line}".split("::")[0] in files for line in slow)


def slow_lines() -> list[str]:
    """Returns the lines of tests/slow.txt that name tests."""
    text = (_ROOT / "tests/slow.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def commit_seed() -> int:
    """Returns a seed that changes with every commit: the beginning of its hash."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout.strip()[:7], 16)
