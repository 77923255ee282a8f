"""Programs that attack: none is correct, harms anything, or keeps running."""

import os
from pathlib import Path

import pytest

from rlvr_jax.sandbox.pool import Limits, Run, RunResult, Sandbox
from tests.support.hostile_programs import (
    ATTACKS,
    ENDLESS,
    PLACES,
    SIZE,
    TESTS,
    make_hostile_programs,
)

LIMITS = Limits(cpu_s=1, wall_s=4, memory_mb=256)
HONEST = Run("def f(x):\n    return x + 1", "assert f(1) == 2", ("f",))


def _pid(sandbox: Sandbox) -> int:
    """Returns the pid of the trainer's child, which is also its session's id."""
    return sandbox._zygote.process.pid


def _session_pids(session: int) -> list[int]:
    """Returns the processes of a session, which a jailed process cannot leave."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[3]) == session:
            pids.append(int(folder.name))
    return pids


def _run_and_look_around(folder: Path, programs: list[tuple[str, str]]) -> None:
    (folder / "keep").write_text("kept")
    before = set(os.listdir("/")) | set(os.listdir("."))
    with Sandbox(LIMITS, workers=2) as sandbox:
        assert sandbox.run_all([HONEST]) == [RunResult(True)]
        session = _pid(sandbox)
        idle = len(_session_pids(session))
        assert 1 <= idle <= 2  # with namespaces, one process waits outside
        runs = [Run(program, TESTS, ("f",)) for _, program in programs]
        outcomes = sandbox.run_all(runs)
        # False: none was correct, and none broke the sandbox, which would give None.
        found = [
            (name, outcome)
            for (name, _), outcome in zip(programs, outcomes, strict=True)
            if outcome.passed is not False
        ]
        assert found == []
        assert len(_session_pids(session)) == idle
        assert _pid(sandbox) == session  # it was not restarted
        assert sandbox.run_all([HONEST]) == [RunResult(True)]
    assert _session_pids(session) == []
    assert set(os.listdir("/")) | set(os.listdir(".")) == before
    assert [path.name for path in folder.iterdir()] == ["keep"]
    assert (folder / "keep").read_text() == "kept"


def test_no_attack_is_correct_or_leaves_a_trace(tmp_path):
    one_each = make_hostile_programs(str(tmp_path), len(ATTACKS))
    quick = [each for each in one_each if each[0].split("-")[0] not in ENDLESS]
    assert len(quick) == len(ATTACKS) - len(ENDLESS)
    _run_and_look_around(tmp_path, quick)


def test_a_thousand_attacks_are_not_correct_and_leave_no_trace(tmp_path):
    _run_and_look_around(tmp_path, make_hostile_programs(str(tmp_path)))


def test_there_are_as_many_different_programs(tmp_path):
    programs = make_hostile_programs(str(tmp_path))
    assert len(programs) == SIZE
    assert len(ATTACKS) * len(PLACES) * 5 >= SIZE
    assert len({name for name, _ in programs}) == SIZE


@pytest.mark.parametrize("place", PLACES)
def test_an_honest_program_is_correct_in_every_place(place):
    """An attack is wrong because of the attack, not because of its place."""
    text = "result = 6 * 7"
    program = PLACES[place].format(attack=text, indented=f"    {text}")
    with Sandbox(LIMITS, workers=1) as sandbox:
        run = Run(program, "assert f(3) == 42", ("f",))
        assert sandbox.run_all([run]) == [RunResult(True)]
