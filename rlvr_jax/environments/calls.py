"""Calls of an environment: each with a time limit, and each failure as a verdict."""

from collections.abc import Sequence

from job_jax.calls import CallLimits, CallResult, Failure, call_each
from rlvr_jax.config.environment import Environment
from rlvr_jax.types import Message, Problem, Reply, Verdict

Call = tuple[Problem, Sequence[Message]]


def answer_turns(environment: Environment, calls: Sequence[Call]) -> list[Reply]:
    """Returns the reply to each of the calls.

    If a call fails, its reply says that the episode is done and unverified, and gives
    the reason in one line. A `respond` that is a coroutine works on
    `environment.concurrency` calls at a time; a plain one works on them one by one.
    """
    limits = CallLimits(
        timeout_s=environment.timeout_s, concurrency=environment.concurrency
    )
    return [
        _check_reply(environment, outcome)
        for outcome in call_each(environment.respond, calls, limits)
    ]


def failed_reply(reason: str, failure: Failure = "error") -> Reply:
    """Returns the end of an episode in which the environment failed."""
    verdict = Verdict(
        status="unverified", reason=f"environment: {reason}", failure=failure
    )
    return Reply(done=True, verdict=verdict)


def _check_reply(environment: Environment, outcome: CallResult) -> Reply:
    reply, most = outcome.value, environment.max_reply_characters
    if outcome.failure is not None:
        return failed_reply(outcome.reason, outcome.failure)
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        return failed_reply(f"{reply!r:.60} is not a Reply with a text")
    if len(reply.text) > most:
        return failed_reply(
            f"a reply of {len(reply.text)} characters, more than "
            f"environment.max_reply_characters={most}"
        )
    return reply
