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
    in SFT. Whole turns that all prompts begin with are written once, for example a
    system message. If they share no turn, line breaks separate the examples
    (if the tokenizer has line breaks).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        examples: Sequence[Problem],
        prompts: Sequence[Problem],
    ):
        self._tokenizer = tokenizer
        self._num_shared = _count_shared_turns(
            [self._encode(problem) for problem in (*examples, *prompts)], self.eos_ids
        )
        between = [] if self._num_shared else tokenizer.encode("\n")
        self._before = encode_prompt(examples[0], tokenizer)
        for number, problem in enumerate(examples):
            if number:
                self._before += self._encode(problem)[self._num_shared :]
            self._before += [*encode_solution(problem, tokenizer), *between]

    def _encode(self, problem: Problem) -> list[int]:
        return self._tokenizer.encode(problem.prompt, literal=problem.literal)

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
        return [*self._before, *self.encode(text, literal=literal)[self._num_shared :]]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, without control tokens."""
        return self._tokenizer.decode(ids)

    def show(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids` with special tokens spelled out."""
        return self._tokenizer.show(ids)


def _count_shared_turns(
    prompts: Sequence[Sequence[int]], eos_ids: Sequence[int]
) -> int:
    """Returns how many tokens of whole turns all prompts begin with.

    >>> _count_shared_turns([[5, 1, 6, 7], [5, 1, 6, 8]], eos_ids=(1,))
    2
    """
    count = 0
    for number, column in enumerate(zip(*prompts, strict=False), start=1):
        if len(set(column)) > 1:
            break
        if column[0] in eos_ids:
            count = number
    return count


def choose_examples(candidates: Sequence[Problem], count: int) -> list[Problem]:
    """Returns the first `count` candidates with a worked solution.

    Raises UsageError if fewer have one.
    """
    solved = [problem for problem in candidates if problem.solution]
    if len(solved) < count:
        raise UsageError(
            f"--shots={count}, but of the {len(candidates)} problems that choose "
            f"latents only {len(solved)} have a worked solution"
        )
    return solved[:count]


def add_worked_examples(
    policy: LoadedPolicy, examples: Sequence[Problem], problems: Sequence[Problem]
) -> LoadedPolicy:
    """Returns the policy that reads the examples before the prompt of each problem.

    Raises UsageError if a prompt becomes too long.
    """
    tokenizer = FewShotTokenizer(policy.setup.tokenizer, examples, problems)
    longest = max(len(encode_prompt(problem, tokenizer)) for problem in problems)
    room = policy.setup.config.eval.sampling.max_new_tokens
    if longest + room > policy.setup.config.model.max_seq_len:
        raise UsageError(
            f"with --shots={len(examples)} a prompt has {longest} tokens and its "
            f"completion up to {room}, which is more than model.max_seq_len="
            f"{policy.setup.config.model.max_seq_len}; give fewer, or "
            f"--config.model.max_seq_len={longest + room} if the policy can read as "
            "many"
        )
    setup = dataclasses.replace(policy.setup, tokenizer=tokenizer)
    return policy._replace(setup=setup)
