"""The rows of all mutants.py fit the program; `python -m tests.mutants` tries them."""

import pathlib

import pytest

from tests.mutants.discovery import mutants_by_area
from tests.mutants.mutant import Mutant

ROOT = pathlib.Path(__file__).parents[1]
MUTANTS = [mutant for area in mutants_by_area().values() for mutant in area]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_line_that_is_there(mutant):
    before = (ROOT / mutant.file).read_text(encoding="utf-8")
    after = mutant.applied(before)
    if mutant.file.endswith(".py"):
        compile(after, mutant.file, "exec")
    assert after != before
    for test in mutant.tests:
        assert (ROOT / test.split("::")[0]).is_file()


def test_names_are_unique_and_a_line_that_is_gone_is_refused():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    gone = Mutant("m", "f.py", "x = 1", "x = 2", ())
    for text in ("y = 1", "x = 1; x = 1"):
        with pytest.raises(ValueError, match="update the row"):
            gone.applied(text)


def test_a_new_file_of_rows_is_found_without_being_named(tmp_path):
    row = (
        "from tests.mutants.mutant import rows\n"
        "MUTANTS = rows('f.py', (), {}=('a', 'b'))\n"
    )
    (tmp_path / "learn" / "deep").mkdir(parents=True)
    (tmp_path / "learn" / "mutants.py").write_text(row.format("first"))
    (tmp_path / "learn" / "deep" / "mutants_more.py").write_text(row.format("second"))
    (tmp_path / "mutants_commands.py").write_text(row.format("third"))
    (tmp_path / "test_mutants.py").write_text("raise AssertionError")
    found = mutants_by_area(tmp_path)
    assert {area: sorted(m.name for m in found[area]) for area in found} == {
        "learn": ["f.first", "f.second"],
        "commands": ["f.third"],
    }
