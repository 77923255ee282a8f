"""What an environment is: it answers the policy's turns until an episode ends.

An episode is a conversation: the policy speaks, the environment answers, until it says
that the episode is done or the tokens are used up. An environment is a frozen dataclass
whose fields are its options; ours are in `rlvr_jax.environments`.

Example of an environment of your own (`mine.py` beside the recipe,
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
    """What answers the policy's turns. By itself: nothing, a completion is one turn.

    `environment.name` chooses the class of this section: `none` (this one),
    `calculator`, `finite_field_steps`, `verifiers`, or your own as
    "package.module:Class", which derives from `Environment`.
    """

    registry: ClassVar[Registry] = ENVIRONMENTS

    @property
    def enabled(self) -> bool:
        """Returns whether completions are episodes: whether the name is not none."""
        return False

    def demonstrate(self, problem: Problem) -> Sequence[Message]:
        """Returns a worked episode for stage sft, () where there is none.

        The policy has the first word and the last. By default: the problem's worked
        solution in one turn.
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

        A run whose tokenizer loses one of them is refused.
        """
        return ()

    def format_reply(self, text: str) -> str:
        """Returns a reply as the policy reads it."""
        return text

    def check_config(self, config: Any) -> None:
        """Raises ConfigError where the whole Config asks for what episodes exclude."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment(EnvironmentConfig):
    """Answers the policy's turns until an episode ends. Subclass it for your own.

    Only `respond` must be written.
    """

    max_turns: PositiveInt = 8  # of the policy's, in an episode
    # Tokens of a turn; 0: all that sampling.max_new_tokens leaves, which counts the
    # tokens of an episode, the environment's among them
    max_turn_tokens: NonNegativeInt = 0
    timeout_s: PositiveFloat = 10.0  # of an answer; over it the episode is unverified
    concurrency: PositiveInt = 16  # answers at a time, of a `respond` that is async
    max_reply_characters: PositiveInt = 4096  # a longer reply: unverified
    overlap: bool = False  # sample one half of a batch while the other half is answered
    # Around a reply: what a chat model reads between two turns of its own
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
        """Returns that completions are episodes."""
        return True

    def respond(
        self, problem: Problem, messages: Sequence[Message]
    ) -> Reply | Awaitable[Reply]:
        """Returns the answer to the last of `messages`, which is the policy's.

        A function of its arguments: a run that is resumed asks again. Write it as
        `async def` where it waits for something: then it is called for many episodes
        at a time. What it raises ends the episode, unverified, with the error as the
        reason.
        """
        raise NotImplementedError

    def completion(self, problem: Problem, messages: Sequence[Message]) -> str:
        """Returns what verifiers and rewards read of an episode.

        By default the policy's turns, one a line: never what the environment wrote.
        """
        return "\n".join(m.text for m in messages if m.role == "policy")

    def format_reply(self, text: str) -> str:
        """Returns a reply as the policy reads it."""
        return self.reply_template.replace(REPLY, text)

    def check_config(self, config: Any) -> None:
        """Raises ConfigError where the whole Config asks for what episodes exclude."""
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
            f"{name} answers between the turns, and train.staleness={staleness} draws "
            "ahead without the host; set staleness=0",
        )
        check(
            not config.train.loss.has_external_traces,
            f"{name} makes episodes, and train.loss.external_traces="
            f"{config.train.loss.external_traces} learns from worked solutions of one "
            "turn; set external_traces=off",
        )
