"""Finds the rows of all areas: the list MUTANTS in every mutants*.py under tests/."""

import pathlib
import runpy

from tests.mutants.mutant import Mutant

TESTS = pathlib.Path(__file__).parents[1]


def mutants_by_area(tests: pathlib.Path = TESTS) -> dict[str, list[Mutant]]:
    """Returns the mutants of each area, in the order of their files and rows.

    An area is a folder of tests: learn/mutants.py and learn/mutants_more.py both belong
    to `learn`. A file next to the folders is a separate area: mutants_commands.py
    belongs to `commands`.
    """
    areas: dict[str, list[Mutant]] = {}
    for path in sorted(tests.rglob("mutants*.py")):
        folders = path.relative_to(tests).parts[:-1]
        area = folders[0] if folders else path.stem.removeprefix("mutants_")
        areas.setdefault(area, []).extend(runpy.run_path(str(path))["MUTANTS"])
    return areas
