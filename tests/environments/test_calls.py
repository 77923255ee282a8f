"""Calls of an environment that raises, hangs, floods or answers nonsense."""

import asyncio
import dataclasses
import threading

import pytest

from rlvr_jax.environments import Environment, Message, Reply
from rlvr_jax.environments import calls as module
from rlvr_jax.environments.calls import EnvironmentHangsError, answer_turns
from rlvr_jax.types import Problem

SAID = (Message(role="policy", text="go on"),)
RELEASED, BARRIER = threading.Event(), threading.Barrier(3)


def _problem(name):
    return Problem(id=name, prompt="?", gold="1", verifier="exact", source="test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scripted(Environment):
    """Does what the problem's id says."""

    def respond(self, problem, messages):
        match problem.id:
            case "raises":
                raise ValueError("no\nsuch   file")
            case "exits":
                raise SystemExit(3)
            case "hangs":
                RELEASED.wait()
            case "floods":
                return Reply(text="x" * 10**6)
            case "text":
                return "55"
            case "number":
                return Reply(text=55)
            case "later":
                return self._later(messages)
        return Reply(text=f"{problem.id} {messages[-1].text}")

    async def _later(self, messages):
        await asyncio.sleep(0)
        return Reply(text=f"later {messages[-1].text}")


@pytest.fixture
def scripted():
    yield Scripted(timeout_s=1.0, workers=2, max_reply_characters=100)
    RELEASED.set()
    for thread in module._abandoned:
        thread.join()
    RELEASED.clear()


def test_each_call_has_its_own_answer_whatever_becomes_of_the_others(scripted):
    names = ["a", "raises", "hangs", "floods", "exits", "text", "number", "later", "b"]
    found = answer_turns(scripted, [(_problem(name), SAID) for name in names])
    answers = dict(zip(names, found, strict=True))
    assert answers["a"] == Reply(text="a go on")
    assert answers["b"] == Reply(text="b go on")
    assert answers["later"] == Reply(text="later go on")
    assert answers["raises"] == "ValueError: no such file"
    assert answers["exits"] == "SystemExit: 3"
    assert answers["hangs"] == "no answer within 1 s"
    assert answers["floods"] == (
        "a reply of 1000000 characters, more than environment.max_reply_characters=100"
    )
    assert answers["text"] == "'55' is no Reply with a text"
    assert answers["number"].endswith("is no Reply with a text")


def test_no_calls_no_answers(scripted):
    assert answer_turns(scripted, []) == []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Together(Environment):
    """Lets calls go once three of them are there."""

    def respond(self, problem, messages):
        BARRIER.wait()
        return Reply(text=problem.id)


def test_as_many_are_worked_on_at_a_time_as_there_are_workers():
    together = Together(workers=3, timeout_s=30.0)
    found = answer_turns(together, [(_problem(str(n)), SAID) for n in range(6)])
    assert [answer.text for answer in found] == [str(n) for n in range(6)]


def test_no_more_than_that():
    alone = Together(workers=2, timeout_s=0.1)
    found = answer_turns(alone, [(_problem(str(n)), SAID) for n in range(2)])
    BARRIER.abort()
    BARRIER.reset()
    assert set(found) == {"no answer within 0.1 s"}


def test_calls_that_pile_up_end_the_run(scripted, monkeypatch):
    monkeypatch.setattr(module, "_MAX_ABANDONED", 2)
    monkeypatch.setattr(module, "_abandoned", [])
    scripted = dataclasses.replace(scripted, timeout_s=0.1)
    hanging = [(_problem("hangs"), SAID)]
    for answered in (1, 2):
        assert answer_turns(scripted, hanging) == ["no answer within 0.1 s"]
        assert len(module._abandoned) == answered
    with pytest.raises(EnvironmentHangsError, match="3 calls of the environment"):
        answer_turns(scripted, hanging)


def test_calls_that_come_back_late_are_forgotten(scripted, monkeypatch):
    monkeypatch.setattr(module, "_abandoned", [])
    scripted = dataclasses.replace(scripted, timeout_s=0.1)
    hanging = [(_problem("hangs"), SAID)]
    answer_turns(scripted, hanging)
    (late,) = module._abandoned
    RELEASED.set()
    late.join()
    RELEASED.clear()
    answer_turns(scripted, hanging)
    assert late not in module._abandoned
    assert len(module._abandoned) == 1
