"""The work of nano-vllm's published benchmark, number by number.

256 sequences with prompts and completions of 100 to 1,024 tokens, drawn by Python's
`random` with seed 0: 142,827 prompt tokens and 133,966 completion tokens. In the
published benchmark, completions have exactly these lengths; `as_prompts` explains how
they do here.
https://github.com/GeeeekExplorer/nano-vllm
"""

import dataclasses
import random

import numpy as np

from rlvr_jax.sampler import pad_prompts
from rlvr_jax.types import BegunRows, Prompts

# Only these ids of the vocabulary are ever drawn, and all but the first end a row.
NUM_REAL_TOKENS = 8
EOS_IDS = tuple(range(1, NUM_REAL_TOKENS))
_LARGEST_ID = 10_000  # in prompts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """Prompts as token ids, and the number of tokens of each completion."""

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

    The sampler does not let a completion end before `min_new_tokens`, and it counts
    tokens that a row had earlier. So each row claims limit + 1 - new_tokens[i] earlier
    tokens, and `min_new_tokens` is the limit. From then on, 7 of 8 tokens end the row.
    Rows get new_tokens[i] tokens and 0.14 more on average; the actual tokens count.
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
