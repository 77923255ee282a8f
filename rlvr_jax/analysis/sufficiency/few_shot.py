"""Worked examples in the prompt: how far a policy comes without RL and steering."""

import dataclasses
from collections.abc import Sequence

from job_jax.flags import UsageError
from rlvr_jax.data.loader import encode_prompt, encode_solution
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.tokenizer.base import Spans, Tokenizer
from rlvr_jax.types import Problem


class FewShotTokenizer(Tokenizer):
    """A tokenizer whose prompts begin with worked examples.

    An example is a whole turn: its prompt, its worked solution and end-of-sequence, as
    in SFT. A line break follows it if the tokenizer has one.
    """

    def __init__(self, tokenizer: Tokenizer, examples: Sequence[Problem]):
        self._tokenizer = tokenizer
        self._examples = [
            token
            for number, problem in enumerate(examples)
            for token in (
                *(
                    tokenizer.encode(problem.prompt, literal=problem.literal)
                    if number
                    else encode_prompt(problem, tokenizer)
                ),
                *encode_solution(problem, tokenizer),
                *tokenizer.encode("\n"),
            )
        ]

    @property
    def vocab_size(self) -> int:
        """Returns the number of ids."""
        return self._tokenizer.vocab_size

    @property
    def eos_id(self) -> int:
        """Returns the id of end-of-sequence."""
        return self._tokenizer.eos_id

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Returns all ids that end a completion."""
        return self._tokenizer.eos_ids

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Returns the texts that also end a completion."""
        return self._tokenizer.stop_strings

    def encode(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of `text`, without examples."""
        return self._tokenizer.encode(text, literal=literal)

    def encode_prompt(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of the examples, then of `text`."""
        return [*self._examples, *self.encode(text, literal=literal)]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, without control tokens."""
        return self._tokenizer.decode(ids)

    def show(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids` with special tokens spelled out."""
        return self._tokenizer.show(ids)


def add_worked_examples(
    policy: LoadedPolicy,
    problems: Sequence[Problem],
    *,
    candidates: Sequence[Problem],
    count: int,
) -> LoadedPolicy:
    """Returns the policy that reads `count` worked examples before each prompt.

    The examples are the first candidates with a worked solution. Raises UsageError if
    too few have one, or if a prompt among `problems` becomes too long.
    """
    solved = [problem for problem in candidates if problem.solution]
    if len(solved) < count:
        raise UsageError(
            f"--shots={count}, but of the {len(candidates)} problems that choose "
            f"latents only {len(solved)} have a worked solution"
        )
    tokenizer = FewShotTokenizer(policy.setup.tokenizer, solved[:count])
    longest = max(len(encode_prompt(problem, tokenizer)) for problem in problems)
    room = policy.setup.config.eval.sampling.max_new_tokens
    if longest + room > policy.setup.config.model.max_seq_len:
        raise UsageError(
            f"with --shots={count} a prompt has {longest} tokens and its completion up "
            f"to {room}, which is more than model.max_seq_len="
            f"{policy.setup.config.model.max_seq_len}; give fewer, or "
            f"--config.model.max_seq_len={longest + room}"
        )
    setup = dataclasses.replace(policy.setup, tokenizer=tokenizer)
    return policy._replace(setup=setup)
