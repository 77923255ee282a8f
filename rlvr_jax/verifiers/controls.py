"""Controls: rewards that carry no truth.

What a policy gains under them it does not owe to verdicts: Qwen2.5-Math gains on MATH
from coin tosses alone (https://arxiv.org/abs/2506.10947).
"""

import dataclasses
import hashlib
import re

from rlvr_jax.answers import stated_answer
from rlvr_jax.types import Problem

_DIGIT = re.compile("[0-9]")


def coin(seed: int, problem_id: str, sample: int) -> bool:
    """Returns a fair coin's side, a function of its arguments alone."""
    name = f"{seed}/{sample}/{problem_id}".encode()
    return bool(hashlib.blake2b(name, digest_size=1).digest()[0] & 1)


def wrong_label(problem: Problem) -> Problem:
    """Returns the problem with a gold that is false, the same at every call.

    The first digit of the gold is one larger, 8 for 9: never 0, which might come to
    stand under a fraction. A finite-field numeral is one smaller, e1 for e0, and so
    stays in its field. A gold without digits becomes 1. Ours: the published control
    takes a model's own wrong answers.
    """
    gold = stated_answer(problem.gold) or problem.gold
    digit = _DIGIT.search(gold)
    if digit is None:
        return dataclasses.replace(problem, gold="1")
    if problem.kind == "finite_field":
        return dataclasses.replace(problem, gold=f"e{abs(int(gold[1:]) - 1)}")
    other = min(int(digit[0]) + 1, 17 - int(digit[0]))
    changed = f"{gold[: digit.start()]}{other}{gold[digit.end() :]}"
    return dataclasses.replace(problem, gold=changed)
