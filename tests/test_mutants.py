"""The list of mutants fits the program; `python -m tests.mutants` tries them."""

import pathlib

import pytest
from mutants.table import MUTANTS, Mutant

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_line_that_is_there(mutant):
    before = (ROOT / mutant.file).read_text(encoding="utf-8")
    after = mutant.applied(before)
    compile(after, mutant.file, "exec")
    assert after != before
    for test in mutant.tests:
        assert (ROOT / test.split("::")[0]).is_file()


def test_names_are_told_apart_and_a_line_that_is_gone_is_refused():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    gone = Mutant("m", "f.py", "x = 1", "x = 2", ())
    for text in ("y = 1", "x = 1; x = 1"):
        with pytest.raises(ValueError, match=r"bring .* up to date"):
            gone.applied(text)
