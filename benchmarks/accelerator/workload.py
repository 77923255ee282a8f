"""The work of nano-vllm's published benchmark, number by number.

256 sequences whose prompts and completions have 100 to 1,024 tokens, drawn by Python's
`random` with seed 0: 142,827 tokens of prompts, 133,966 tokens of completions. There a
completion has exactly so many tokens; see `as_prompts` for how it does here.
https://github.com/GeeeekExplorer/nano-vllm
"""

import dataclasses
import random

import numpy as np

from rlvr_jax.sampler import pad_prompts
from rlvr_jax.types import BegunRows, Prompts

# Of the vocabulary only these ids are ever drawn, and all but the first end a row.
NUM_REAL_TOKENS = 8
EOS_IDS = tuple(range(1, NUM_REAL_TOKENS))
_LARGEST_ID = 10_000  # of a prompt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """Prompts as token ids, and how many tokens each completion has."""

    prompts: list[list[int]]
    new_tokens: list[int]
    limit: int  # the most tokens that a prompt or a completion may have


def published_workload(
    num_sequences: int = 256, *, shortest: int = 100, limit: int = 1024
) -> Workload:
    """Returns the benchmark's sequences.

    Example:
        >>> sum(published_workload().new_tokens)
        133966
    """
    draw = random.Random(0)
    prompts = [
        [draw.randint(0, _LARGEST_ID) for _ in range(draw.randint(shortest, limit))]
        for _ in range(num_sequences)
    ]
    new_tokens = [draw.randint(shortest, limit) for _ in range(num_sequences)]
    return Workload(prompts=prompts, new_tokens=new_tokens, limit=limit)


def as_prompts(workload: Workload, *, vocab_size: int) -> Prompts:
    """Returns the prompts such that completion i has about `new_tokens[i]` tokens.

    The sampler bars the end of a completion before `min_new_tokens`, and counts the
    tokens that a row has had before. So each row is said to have had limit + 1 -
    new_tokens[i] of them, and `min_new_tokens` is the limit: from then on 7 of 8
    tokens end the row. Decoded are new_tokens[i] tokens and 0.14 more in the mean; the
    tokens that are counted are those that came out.
    """
    padded = pad_prompts(
        [[token % vocab_size for token in prompt] for prompt in workload.prompts],
        uids=range(len(workload.prompts)),
        pad_multiple=workload.limit,
    )
    had = [workload.limit + 1 - count for count in workload.new_tokens]
    begun = BegunRows(
        sample=np.zeros(len(had), np.uint32), length=np.array(had, np.int32)
    )
    return dataclasses.replace(padded, begun=begun)
