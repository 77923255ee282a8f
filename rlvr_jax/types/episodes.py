"""Conversations that completions may be; all on the host."""

import dataclasses
from typing import Literal

from rlvr_jax.types.problems import Verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """The policy's text in one turn of an episode, or the environment's answer."""

    role: Literal["policy", "environment"]
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """An environment's answer to a turn. Written by `Environment.respond`.

    The policy reads `text` next. With `done` the episode has ended and `text` is
    ignored; `verdict` may then judge the episode (None: the problem's verifier does).
    `tool_calls` counts the calls that the turn made.
    """

    text: str = ""
    done: bool = False
    verdict: Verdict | None = None
    tool_calls: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """One completion as a conversation. Written by `rollouts.episodes`.

    Read by `rollouts.graded` and metrics. Verifiers and rewards read `completion`: the
    policy's own words, assembled by `Environment.completion`. `verdict` is the
    environment's, or None if the verifier judges. If the environment gave no answer, it
    is unverified and says why.
    """

    messages: tuple[Message, ...]
    completion: str
    tool_calls: int = 0
    verdict: Verdict | None = None

    @property
    def failed(self) -> bool:
        """Returns whether the environment gave no answer."""
        return self.verdict is not None and self.verdict.failure is not None

    @property
    def num_turns(self) -> int:
        """Returns how many turns the policy had."""
        return len(self.policy_turns)

    @property
    def policy_turns(self) -> list[str]:
        """Returns the policy's texts, turn by turn."""
        return [message.text for message in self.messages if message.role == "policy"]
