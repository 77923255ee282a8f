"""Calls to an environment that raises, hangs, floods or returns nonsense."""

import asyncio
import dataclasses
import threading

import pytest

from rlvr_jax.environments import Environment, Message, Reply
from rlvr_jax.environments.calls import answer_turns
from rlvr_jax.types import Problem, Verdict

SAID = (Message(role="policy", text="go on"),)


def _problem(name):
    return Problem(id=name, prompt="?", gold="1", verifier="exact", source="test")


def _do(problem, messages):
    """Acts as the problem's id says."""
    match problem.id:
        case "raises":
            raise ValueError("no such file\nat all")
        case "exits":
            raise SystemExit(3)
        case "floods":
            return Reply(text="x" * 10**6)
        case "text":
            return "55"
        case "number":
            return Reply(text=55)
    return Reply(text=f"{problem.id} {messages[-1].text}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain(Environment):
    """Answers one call after the other."""

    def respond(self, problem, messages):
        if problem.id == "hangs":
            threading.Event().wait()
        return _do(problem, messages)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiting(Environment):
    """Answers many calls at a time."""

    async def respond(self, problem, messages):
        if problem.id == "hangs":
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return _do(problem, messages)


def _answers(environment, *names):
    found = answer_turns(environment, [(_problem(name), SAID) for name in names])
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("kind", [Plain, Waiting])
def test_each_call_has_its_own_answer_whatever_becomes_of_the_others(kind):
    environment = kind(max_reply_characters=100)
    names = ("a", "raises", "floods", "exits", "text", "number", "b")
    answers = _answers(environment, *names)
    assert answers["a"] == Reply(text="a go on")
    assert answers["b"] == Reply(text="b go on")
    reasons = {name: answers[name].verdict.reason for name in names[1:-1]}
    assert reasons == {
        "raises": "environment: ValueError: no such file",
        "exits": "environment: SystemExit: 3",
        "floods": "environment: a reply of 1000000 characters, more than "
        "environment.max_reply_characters=100",
        "text": "environment: '55' is not a Reply with a text",
        "number": "environment: Reply(text=55, done=False, verdict=None, tool_calls=0) "
        "is not a Reply with a text",
    }
    for name in reasons:
        verdict = answers[name].verdict
        assert answers[name].done
        assert (verdict.status, verdict.failure) == ("unverified", "error")


@pytest.mark.parametrize("kind", [Plain, Waiting])
def test_a_hanging_call_is_dropped_and_the_others_are_not(kind):
    answers = _answers(kind(timeout_s=0.5), "hangs", "a")
    assert answers["a"] == Reply(text="a go on")
    assert answers["hangs"].verdict == Verdict(
        status="unverified",
        reason="environment: time limit 0.5 s",
        failure="time_limit",
    )


def test_a_reply_may_be_as_long_as_it_may_be():
    environment = Plain(max_reply_characters=len("a go on"))
    assert _answers(environment, "a")["a"].text == "a go on"
    assert _answers(environment, "ab")["ab"].verdict.failure == "error"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_requested_number_of_calls_runs_at_a_time(concurrency):
    now, most = [], []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Counting(Environment):
        async def respond(self, problem, messages):
            now.append(problem.id)
            most.append(len(now))
            await asyncio.sleep(0.01)
            now.remove(problem.id)
            return Reply()

    Counting.__qualname__ = "Counting"
    names = [str(n) for n in range(7)]
    answers = _answers(Counting(concurrency=concurrency), *names)
    assert all(answer == Reply() for answer in answers.values())
    assert max(most) == concurrency
    assert _answers(Plain()) == {}
