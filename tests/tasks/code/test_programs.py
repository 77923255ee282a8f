"""Generated programs: described in words, tested with numbers, solved with bugs."""

import json

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.tasks import ProgramsTask
from rlvr_jax.verifiers.grader import Grader

COUNT = 60


def _problems(stage="train", *, seed=0, count=COUNT, **options):
    source = ProgramsTask(**options).problems(stage, seed=seed)
    return [source[i] for i in range(count)]


def _statuses(problems, programs) -> list[str]:
    with Grader(VerifierConfig()) as grader:
        return [verdict.status for verdict in grader(problems, programs)]


def test_a_hand_that_makes_no_errors_passes_and_one_that_errs_at_every_twin_fails():
    right = _problems(error_rate=0.0)
    assert _statuses(right, [p.solution for p in right]) == ["correct"] * COUNT
    wrong = _problems(error_rate=1.0)
    assert [p.prompt for p in wrong] == [p.prompt for p in right]
    found = _statuses(wrong, [p.solution for p in wrong])
    twins = [int(p.type.removeprefix("twins_")) for p in wrong]
    assert {0, 1, 2} <= set(twins)
    # Several wrong steps may cancel out; a single one never does.
    for count, status in zip(twins, found, strict=True):
        if count < 2:
            assert status == ("incorrect" if count else "correct")


def test_a_step_more_or_less_fails():
    problems = [p for p in _problems(error_rate=0.0) if p.level > 1]
    shorter = [p.solution.partition(" ; ")[2] for p in problems]
    found = _statuses(problems, shorter)
    assert found.count("incorrect") > 0.8 * len(found)  # a step may have no effect


def test_sides_share_no_program_and_held_out_ones_are_the_same_for_every_seed():
    train = {p.prompt for p in _problems(count=400)}
    held_out = _problems("eval", count=100)
    assert not train & {p.prompt for p in held_out}
    assert held_out == _problems("eval", seed=5, count=100)
    assert _problems(seed=1) != _problems(seed=2)
    assert _problems(seed=1) == _problems(seed=1)


def test_every_word_is_in_the_vocabulary():
    words = set(ProgramsTask().vocabulary())
    for problem in _problems(count=300):
        assert set(f"{problem.prompt} {problem.solution}".split()) <= words
    assert {w for p in _problems(count=300) for w in p.prompt.split()} - words == set()


def test_levels_and_tests_follow_the_settings():
    problems = _problems(num_steps=(2, 5), num_tests=3)
    assert {p.level for p in problems} == {2, 5}
    for problem in problems:
        assert problem.prompt.count(",") == problem.level - 1
        assert json.loads(problem.gold)["tests"].count("assert") == 3


def test_lengths_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match="hold at least one number of steps"):
        ProgramsTask(num_steps=())
    with pytest.raises(ConfigError, match="hold at least one number of steps"):
        ProgramsTask(num_steps=(0,))
