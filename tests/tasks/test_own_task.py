"""A custom task in a module next to the recipe, graded by its own verifier."""

import pytest

from job_jax.config_io import from_json, override, to_json
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, VerifierConfig
from rlvr_jax.rollouts.behavior import FLAGS
from rlvr_jax.tasks import Task
from rlvr_jax.verifiers.grader import Grader

# Each problem is a number to reach by moves of +1 and *2. No gold answer exists, so
# the verifier plays the moves.
MODULE = '''
import dataclasses
from job_jax.schema import PositiveInt
from rlvr_jax.tasks import Task
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import Verifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reach(Task):
    """Numbers to reach from 1."""

    largest: PositiveInt = 9

    def problems(self, stage, *, seed):
        numbers = range(2, self.largest + 1)
        return [
            Problem(
                id=str(n), prompt=f"{n}?", gold=str(n),
                verifier="reach:Play", source="reach",
            )
            for n in numbers
        ]


class Play(Verifier):
    """Plays the moves."""

    def grade(self, problem, completion):
        value = 1
        for move in completion.split():
            if move not in ("+1", "*2"):
                return Verdict(status="incorrect", reason=f"no move: {move}")
            value = value + 1 if move == "+1" else 2 * value
        reached = value == int(problem.gold)
        return Verdict(status="correct" if reached else "incorrect", answer=str(value))
'''


@pytest.fixture
def config(monkeypatch, tmp_path):
    (tmp_path / "reach.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = {"task.source": "reach:Reach", "task.largest": "5"}
    return override(Config(), flags | {"tokenizer.kind": "sentencepiece"})


def test_it_is_chosen_by_its_place_and_written_to_json(config):
    assert isinstance(config.task, Task)
    data = to_json(config)
    assert data["task"] == {"source": "reach:Reach", "largest": 5}
    assert from_json(Config, data) == config
    assert config.task.describe() == "problems of reach:Reach"


def test_its_problems_are_graded_by_its_own_verifier(config):
    problems = config.task.problems("train", seed=0)
    assert [p.gold for p in problems] == ["2", "3", "4", "5"]
    with Grader(VerifierConfig()) as grader:
        verdicts = grader(problems, ["*2", "*2 +1", "+1", "jump"])
    assert [v.status for v in verdicts] == ["correct", "correct", *["incorrect"] * 2]
    assert verdicts[3].reason == "no move: jump"


def test_what_it_does_not_know_is_left_to_others(config):
    (problem, *_) = config.task.problems("train", seed=0)
    assert config.task.behavior(problem, "*2", is_correct=True) is None
    assert config.task.step_correctness(problem, "*2") == []
    assert config.task.vocabulary() == config.task.factors == ()
    with pytest.raises(ConfigError, match=r"word_level cannot read task\.source=reach"):
        override(config, {"tokenizer.kind": "word_level"})


def test_ours_flags_only_what_there_are_flags_for():
    task = Config().task
    problem = task.problems("train", seed=0)[0]
    behavior = task.behavior(problem, problem.solution, is_correct=True)
    assert behavior.strategy in task.strategies
    assert behavior.flags.keys() <= set(FLAGS)
