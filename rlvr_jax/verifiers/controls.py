"""Control rewards, which carry no information about correctness.

A gain under them does not come from verdicts: Qwen2.5-Math gains on MATH from coin
tosses alone (https://arxiv.org/abs/2506.10947).
"""

import dataclasses
import hashlib

from rlvr_jax.types import Problem
from rlvr_jax.verifiers.base import get_verifier


def coin_flip(seed: int, problem_id: str, sample: int) -> bool:
    """Returns the side of a fair coin, which depends only on the arguments."""
    name = f"{seed}/{sample}/{problem_id}".encode()
    return bool(hashlib.blake2b(name, digest_size=1).digest()[0] & 1)


def draw_fraction(seed: int, problem_id: str, sample: int, text: str) -> float:
    """Returns a number in [0, 1), uniform over texts; a function of the arguments.

    A resumed run that samples the same text again draws the same number. It is below d
    with probability d, and a number below one d is below every larger d.
    """
    name = f"{seed}/{sample}/{problem_id}/{text}".encode()
    bits = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) >> 11
    return bits / 2**53  # as many bits as a float has, so that it never rounds up to 1


def corrupt_gold(problem: Problem) -> Problem:
    """Returns the problem with a false gold, the same at every call.

    This rule is ours: the published control uses a model's own wrong answers.
    """
    gold = get_verifier(problem.verifier).corrupt_gold(problem)
    return dataclasses.replace(problem, gold=gold, other_golds=())
