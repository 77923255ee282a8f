"""One step at a time: which steps hold, the replies, and the graded text."""

import dataclasses

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.environments import Message
from rlvr_jax.environments.finite_field import FiniteFieldSteps
from rlvr_jax.tasks import ChainMix, FiniteFieldTask, WordProblemsTask
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import parse_confidence

# 3 + 2 = 5, 5 * 4 = 20 = 6 in GF(7).
EVALUATION = Problem(
    id="e",
    prompt="evaluate : e3 k + e2 l * e4 = ?",
    gold="e6",
    verifier="finite_field",
    source="finite_field/GF(7)",
)
# Backward from 6: 6 / 4 = 5, 5 - 2 = 3.
INVERSION = dataclasses.replace(
    EVALUATION, prompt="invert : ? k + e2 l * e4 = e6", gold="e3"
)
FIRST, SECOND = "forward : k e3 + e2 = e5", "l e5 * e4 = e6"
ENVIRONMENT = FiniteFieldSteps()


def _episode(problem, *turns):
    """Returns the reply to each turn, and the messages."""
    messages, replies = [], []
    for turn in turns:
        messages.append(Message(role="policy", text=turn))
        reply = ENVIRONMENT.respond(problem, messages)
        replies.append("done" if reply.done else reply.text)
        messages.append(Message(role="environment", text=reply.text))
    return replies, messages[:-1]


def test_steps_that_follow_hold_until_the_answer():
    replies, messages = _episode(EVALUATION, FIRST, SECOND, "answer e6")
    assert replies == ["right", "right", "done"]
    text = ENVIRONMENT.completion(EVALUATION, messages)
    assert text == f"{FIRST} {SECOND} answer e6"


@pytest.mark.parametrize(
    "turn",
    [
        "forward : k e3 + e2 = e6",  # wrong result
        "forward : k e2 + e2 = e4",  # from another start
        "forward : l e3 * e4 = e5",  # not the next step
        "backward : l e6 / e4 = e5",  # from a guess of the answer
        "k e3 + e2 = e5",  # no strategy
        f"{FIRST} {SECOND}",  # two steps
        "forward : k e3 + e2 =",
        "forward :",
        "",
    ],
)
def test_a_step_that_does_not_follow_is_wrong_and_can_be_rewritten(turn):
    replies, messages = _episode(EVALUATION, turn, FIRST, SECOND, "answer e6")
    assert replies == ["wrong", "right", "right", "done"]
    # Steps that did not hold are not part of the trace.
    text = ENVIRONMENT.completion(EVALUATION, messages)
    assert text == f"{FIRST} {SECOND} answer e6"


@pytest.mark.parametrize(
    "turn", ["l e5 * e4 = e5", "l e3 * e4 = e5", "k e3 + e2 = e5", FIRST, SECOND + " ;"]
)
def test_a_later_step_continues_from_the_last_valid_one(turn):
    replies, messages = _episode(EVALUATION, FIRST, turn, SECOND, "answer e6")
    assert replies == ["right", "wrong", "right", "done"]
    assert ENVIRONMENT.completion(EVALUATION, messages) == (
        f"{FIRST} {SECOND} answer e6"
    )


def test_an_inversion_is_worked_from_its_end():
    replies, _ = _episode(
        INVERSION, "backward : l e6 / e4 = e5", "k e5 - e2 = e3", "answer e3"
    )
    assert replies == ["right", "right", "done"]
    assert _episode(INVERSION, FIRST)[0] == ["wrong"]


def test_more_steps_than_there_are_do_not_hold():
    replies, _ = _episode(EVALUATION, FIRST, SECOND, "m e6 + e1 = e0")
    assert replies == ["right", "right", "wrong"]


def test_a_demonstration_states_the_confidence_of_the_worked_solution():
    task = FiniteFieldTask(ask_confidence=True, sft=ChainMix(types=("evaluation",)))
    problem = task.problems("sft", seed=0)[0]
    *_, last = ENVIRONMENT.demonstrate(problem)
    stated = problem.solution.rsplit(" ", 1)[1]
    assert last.text == f"answer {problem.gold} {stated}"
    assert parse_confidence(stated) is not None


def test_demonstrations_are_right_at_every_turn():
    task = FiniteFieldTask(modulus=5, sft=ChainMix(chain_lengths=(1, 2, 3)))
    source = task.problems("sft", seed=0)
    kinds = set()
    for index in range(20):
        problem = source[index]
        messages = ENVIRONMENT.demonstrate(problem)
        turns = [m.text for m in messages if m.role == "policy"]
        assert len(turns) == problem.level + 1
        replies, said = _episode(problem, *turns)
        assert replies == ["right"] * problem.level + ["done"]
        assert tuple(said) == messages
        text = ENVIRONMENT.completion(problem, messages)
        verdict = get_verifier("finite_field").grade(problem, text)
        assert verdict.status == "correct"
        kinds.add(problem.type)
    assert kinds == {"evaluation", "inversion"}


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (WordProblemsTask(), "task.source=word_problems"),
        (
            FiniteFieldTask(eval=ChainMix(types=("composition",))),
            "task.eval.types=",
        ),
    ],
)
def test_other_problems_are_refused(task, why):
    with pytest.raises(ConfigError, match=why):
        Config(task=task, environment=FiniteFieldSteps())
