"""Calls of an environment: many at a time, each with a limit of time.

Every call has a thread of its own. One that is not back in time is given up, for Python
cannot end it: its answer is not waited for any more, and what it holds stays held.
"""

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Sequence

from rlvr_jax.config.environment import Environment
from rlvr_jax.types import Message, Problem, Reply

# Given up and still running: more than so many are a leak that no time limit mends.
_MAX_ABANDONED = 200
_MAX_REASON = 200  # characters
_abandoned: list[threading.Thread] = []

Call = tuple[Problem, Sequence[Message]]
Answer = Reply | str  # a text: why there is no reply


class EnvironmentHangsError(RuntimeError):
    """Too many calls of the environment never came back."""


def answer_turns(environment: Environment, calls: Sequence[Call]) -> list[Answer]:
    """Returns the reply to each of the calls, or one line that says why there is none.

    At most `environment.workers` are worked on at a time. Raises EnvironmentHangsError
    where hundreds are still running that were given up.
    """
    answers: list[Answer] = [""] * len(calls)
    arrived: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
    running: dict[int, tuple[threading.Thread, float]] = {}
    next_call = 0
    while next_call < len(calls) or running:
        while next_call < len(calls) and len(running) < environment.workers:
            running[next_call] = _start(environment, calls, next_call, arrived)
            next_call += 1
        try:
            first = min(deadline for _, deadline in running.values())
            number, answer = arrived.get(timeout=max(0.0, first - time.monotonic()))
        except queue.Empty:
            for number in _overdue(running):
                answers[number] = f"no answer within {environment.timeout_s:g} s"
                _abandon(running.pop(number)[0])
            continue
        if number in running:  # else it came too late
            answers[number] = answer
            del running[number]
    return answers


def _start(
    environment: Environment,
    calls: Sequence[Call],
    number: int,
    arrived: "queue.SimpleQueue[tuple[int, Answer]]",
) -> tuple[threading.Thread, float]:
    """Starts a call; returns its thread, and when it must be back."""

    def work() -> None:
        arrived.put((number, _respond(environment, *calls[number])))

    thread = threading.Thread(target=work, daemon=True, name=f"environment-{number}")
    thread.start()
    return thread, time.monotonic() + environment.timeout_s


def _respond(
    environment: Environment, problem: Problem, messages: Sequence[Message]
) -> Answer:
    try:
        reply = environment.respond(problem, messages)
        if inspect.isawaitable(reply):
            reply = asyncio.run(_await(reply))
    except BaseException as error:  # a tool that calls exit() ends its episode alone
        return _one_line(f"{type(error).__name__}: {error}")
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        return _one_line(f"{reply!r:.60} is no Reply with a text")
    if len(reply.text) > environment.max_reply_characters:
        return (
            f"a reply of {len(reply.text)} characters, more than "
            f"environment.max_reply_characters={environment.max_reply_characters}"
        )
    return reply


async def _await(reply: Awaitable[Reply]) -> Reply:
    return await reply


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_REASON]


def _overdue(running: dict[int, tuple[threading.Thread, float]]) -> list[int]:
    now = time.monotonic()
    return [number for number, (_, deadline) in running.items() if deadline <= now]


def _abandon(thread: threading.Thread) -> None:
    """Notes a thread that is given up. Raises EnvironmentHangsError."""
    _abandoned[:] = [each for each in (*_abandoned, thread) if each.is_alive()]
    if len(_abandoned) > _MAX_ABANDONED:
        raise EnvironmentHangsError(
            f"{len(_abandoned)} calls of the environment are still running that did "
            "not answer in time; give what they wait for a time limit of its own, or "
            "raise environment.timeout_s"
        )
