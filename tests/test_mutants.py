"""The rows of all mutants.py fit the program; `python -m tests.mutants` tries them."""

import dataclasses
import functools
import os
import pathlib
import re

import pytest

from tests.mutants.discovery import mutants_by_area
from tests.mutants.mutant import Mutant
from tests.mutants.sampling import draw_sample, has_slow_tests, is_everyday
from tests.mutants.trial import EVERYDAY, Runner, environment, try_mutant

ROOT = pathlib.Path(__file__).parents[1]


@functools.cache
def _mutants() -> list[Mutant]:
    return [mutant for area in mutants_by_area().values() for mutant in area]


def _fault(mutant: Mutant) -> str | None:
    """Returns why a row fits the program no longer."""
    try:
        before = _read(mutant.file)
        after = mutant.applied(before)
        if mutant.file.endswith(".py"):
            compile(after, mutant.file, "exec")
    except (OSError, ValueError, SyntaxError) as error:
        return f"{mutant.name}: {error}"
    if after == before:
        return f"{mutant.name} changes nothing"
    missing = [t for t in mutant.tests if not (ROOT / t.split("::")[0]).is_file()]
    return f"{mutant.name}: no {missing}" if missing else None


@functools.cache
def _read(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_every_mutant_changes_one_line_that_is_there():
    assert [fault for mutant in _mutants() if (fault := _fault(mutant))] == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"old": "x = 2"}, "contains 'x = 2' 0 times"),
        ({"new": "x = 1"}, "changes nothing"),
        ({"new": "x = (1"}, "never closed"),
        ({"file": "tests/none.py"}, "No such file"),
        ({"tests": ("tests/test_none.py::test_x",)}, "tests/test_none.py::test_x"),
    ],
)
def test_a_row_that_does_not_fit_is_named(change, fault, tmp_path):
    file = tmp_path / "f.py"
    file.write_text("x = 1\n")
    fits = Mutant("m", str(file), "x = 1", "x = 2", ("tests/test_mutants.py::test_y",))
    assert _fault(fits) is None
    said = _fault(dataclasses.replace(fits, **change))
    assert said.startswith("m")
    assert fault in said


def test_rows_are_unique_and_a_line_that_is_gone_is_refused():
    assert len({mutant.name for mutant in _mutants()}) == len(_mutants())
    changes = {(mutant.file, mutant.old, mutant.new) for mutant in _mutants()}
    assert len(changes) == len(_mutants())
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


AREAS = {
    area: [Mutant(f"{area}{n}", "f.py", "a", "b", ()) for n in range(size)]
    for area, size in {"learn": 50, "models": 30, "plan": 1}.items()
}


def test_a_sample_is_the_seeds_and_has_every_area():
    samples = [draw_sample(AREAS, 10, seed=seed) for seed in (3, 3, 4)]
    assert samples[0] == samples[1]
    assert set(samples[0]) != set(samples[2])
    for sample in samples:
        assert len(set(sample)) == 10
        assert {mutant.name.rstrip("0123456789") for mutant in sample} == set(AREAS)
    assert len(draw_sample(AREAS, 2, seed=0)) == 2
    assert len(draw_sample(AREAS, 99, seed=0)) == 81


def test_a_row_is_everyday_if_one_of_its_tests_is():
    slow = ["run/test_start.py", "learn/test_loss.py::test_many", "data/test_x.py::"]
    for tests, everyday, has_slow in [
        (("tests/run/test_start.py",), False, True),
        (("tests/run/test_start.py::test_copies",), False, True),
        (("tests/run/test_start.py", "tests/run/test_other.py"), True, True),
        (("tests/learn/test_loss.py",), True, True),
        (("tests/learn/test_loss.py::test_many[1]",), False, True),
        (("tests/learn/test_loss.py::test_one",), True, True),
        (("tests/algorithms/test_losses.py",), True, False),
    ]:
        mutant = Mutant("m", "f.py", "a", "b", tests)
        assert is_everyday(mutant, slow) == everyday, tests
        assert has_slow_tests(mutant, slow) == has_slow, tests


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take long
    (tmp_path / "f.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: ...\n")
    (tmp_path / "tests").mkdir()
    with Runner(tmp_path, libraries=["pytest"]) as runner:
        yield runner


def test_a_failing_test_is_a_kill_and_a_broken_import_is_none(runner):
    test = "import f\ndef test_double():\n    assert f.double(3) == 6\n"
    (runner.tree / "tests/test_f.py").write_text(test)
    for old, new, is_kill in [
        ("2 * x", "3 * x", True),
        ("2 * x", "x + x", False),
        ("def double", "def triple", True),
        ("def double", "import no_such_module\ndef double", False),
    ]:
        mutant = Mutant("m", "f.py", old, new, ("tests/test_f.py",))
        outcome = try_mutant(mutant, runner, limit_s=100, has_slow_tests=False)
        assert outcome.is_kill == is_kill, outcome.text
        assert "return 2 * x" in (runner.tree / "f.py").read_text()
    endless = dataclasses.replace(mutant, old="return 2 * x", new="while True: pass")
    outcome = try_mutant(endless, runner, limit_s=1.0, has_slow_tests=False)
    assert outcome.code == 124
    assert not outcome.is_kill


def test_a_slow_test_that_fails_without_the_mutant_too_is_no_kill(runner):
    slow = "import f, pytest\n@pytest.mark.slow\ndef test_double():\n    assert {}\n"
    mutant = Mutant("m", "f.py", "2 * x", "3 * x", ("tests/test_f.py",))
    for condition, is_kill in [("f.double(3) == 6", True), ("f.double(3) == 7", False)]:
        (runner.tree / "tests/test_f.py").write_text(slow.format(condition))
        assert runner.run(mutant.tests, EVERYDAY, limit_s=100).passed
        outcome = try_mutant(mutant, runner, limit_s=100, has_slow_tests=True)
        assert outcome.is_kill == is_kill, outcome.text


def test_programs_are_kept_where_the_gate_keeps_them(tmp_path, monkeypatch):
    gate = (ROOT / "launch/test.sh").read_text()
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    ours = environment(tmp_path)
    assert ours["JAX_COMPILATION_CACHE_DIR"] == "/caches/rlvr_jax/tests"
    assert 'cache="${XDG_CACHE_HOME:-$HOME/.cache}/rlvr_jax/tests"' in gate
    seconds = ours["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]
    assert f"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS={seconds}\n" in gate
    always = re.search(r'^flags="(.*?)"', gate, re.S | re.M)[1]
    everyday = re.search(r'^everyday="\$flags(.*?)"', gate, re.M)[1]
    patience = re.search(r"^patience=(\d+)$", gate, re.M)[1]
    flags = f"{always}{everyday}".replace("$patience", patience).replace("\\\n", "")
    assert {*ours["XLA_FLAGS"].split()} == {*flags.split()}
    monkeypatch.setenv("XLA_FLAGS", "")
    assert environment(tmp_path)["XLA_FLAGS"] == ""
