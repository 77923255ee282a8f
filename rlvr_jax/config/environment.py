"""The base class of environments: they answer the policy's turns in an episode.

An episode is a conversation: the policy speaks and the environment answers, until the
environment says that the episode is done or the tokens are used up. An environment is a
frozen dataclass whose fields are its options; ours are in `rlvr_jax.environments`.

Example of a custom environment (`mine.py` next to the recipe,
`--config.environment.name=mine:Hints`):

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Hints(Environment):
        hint: str = "think again"  # --config.environment.hint=...

        def respond(self, problem, messages):
            right = problem.gold in messages[-1].text.split()
            return Reply(done=True) if right else Reply(text=self.hint)
"""

import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar

from job_jax.registry import OpenSection, Registry
from job_jax.schema import NonNegativeInt, PositiveFloat, PositiveInt, check
from rlvr_jax.types import Message, Problem, Reply

ENVIRONMENTS = Registry(
    "environment",
    {
        "none": "rlvr_jax.config.environment:EnvironmentConfig",
        "calculator": "rlvr_jax.environments.calculator:Calculator",
        "verifiers": "rlvr_jax.environments.verifiers:VerifiersEnvironment",
        "finite_field_steps": "rlvr_jax.environments.finite_field:FiniteFieldSteps",
    },
)
REPLY = "{reply}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentConfig(OpenSection):
    """What answers the policy's turns; by default nothing: a completion is one turn.

    `environment.name` chooses the class of this section: `none` (this one),
    `calculator`, `finite_field_steps`, `verifiers`, or your own subclass of
    `Environment` as "package.module:Class".
    """

    registry: ClassVar[Registry] = ENVIRONMENTS

    @property
    def enabled(self) -> bool:
        """Returns whether completions are episodes; False for the name none."""
        return False

    def demonstrate(self, problem: Problem) -> Sequence[Message]:
        """Returns a worked episode for stage sft, () if the problem has no solution.

        Its first and last messages are the policy's. By default, it is the problem's
        worked solution in one turn.
        """
        if problem.solution is None:
            return ()
        return (Message(role="policy", text=problem.solution),)

    def vocabulary(self) -> tuple[str, ...]:
        """Returns the words that episodes add to a task's closed vocabulary."""
        return ()

    @property
    def marks(self) -> tuple[str, ...]:
        """Returns the texts that the policy must be able to write, such as <calc>.

        A run is refused if its tokenizer cannot represent one of them.
        """
        return ()

    def format_reply(self, text: str) -> str:
        """Returns a reply as the policy reads it."""
        return text

    def check_config(self, config: Any) -> None:
        """Raises ConfigError if a setting of the whole Config excludes episodes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment(EnvironmentConfig):
    """Answers the policy's turns until an episode ends. Subclass it for your own.

    Only `respond` is required.
    """

    max_turns: PositiveInt = 8  # turns of the policy in an episode
    # Tokens of a turn; 0: as many as sampling.max_new_tokens leaves, which counts all
    # tokens of an episode, also the environment's
    max_turn_tokens: NonNegativeInt = 0
    timeout_s: PositiveFloat = 10.0  # for a reply; a later one: episode unverified
    concurrency: PositiveInt = 16  # replies at a time, with an async `respond`
    max_reply_characters: PositiveInt = 4096  # a longer reply: episode unverified
    overlap: bool = False  # sample one half of a batch while the other half is answered
    # The text around a reply, as a chat model expects it between two of its turns
    reply_template: str = REPLY

    def __post_init__(self) -> None:
        """Refuses a template that leaves the reply out."""
        super().__post_init__()
        check(
            REPLY in self.reply_template,
            f"reply_template={self.reply_template!r} has no place for the reply; write "
            f"{REPLY} in it",
        )

    @property
    def enabled(self) -> bool:
        """Returns True: completions are episodes."""
        return True

    def respond(
        self, problem: Problem, messages: Sequence[Message]
    ) -> Reply | Awaitable[Reply]:
        """Returns the answer to the last of `messages`, which is the policy's.

        It must depend on its arguments only, because a resumed run calls it again. If
        it waits for something, write it as `async def`; it is then called for many
        episodes at a time. An exception ends the episode as unverified, with the error
        as the reason.
        """
        raise NotImplementedError

    def completion(self, problem: Problem, messages: Sequence[Message]) -> str:
        """Returns the text of an episode that verifiers and rewards read.

        By default the policy's turns, one a line, without the environment's replies.
        """
        return "\n".join(m.text for m in messages if m.role == "policy")

    def format_reply(self, text: str) -> str:
        """Returns a reply as the policy reads it."""
        return self.reply_template.replace(REPLY, text)

    def check_config(self, config: Any) -> None:
        """Raises ConfigError if a setting of the whole Config excludes episodes."""
        name = f"environment.name={self.tags()[self.tag]}"
        stops = config.tokenizer.stop_strings
        check(
            not stops,
            f"{name} ends turns at end-of-sequence, and tokenizer.stop_strings={stops} "
            "cuts completions at texts; leave stop_strings empty",
        )
        staleness = config.train.staleness
        check(
            staleness == 0,
            f"{name} answers on the host between turns, and train.staleness={staleness}"
            " samples ahead without the host; set staleness=0",
        )
        check(
            not config.train.loss.has_external_traces,
            f"{name} makes episodes, and train.loss.external_traces="
            f"{config.train.loss.external_traces} learns from worked solutions of one "
            "turn; set external_traces=off",
        )
