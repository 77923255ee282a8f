"""A reward that luck does not earn: `train.reward.names` takes it by its full name.

--config.train.reward.names=rlvr_jax.tasks.finite_field.rewards:worked_answer
"""

import re

from rlvr_jax.tasks.finite_field.traces import parse_trace
from rlvr_jax.tasks.finite_field.verifier import FiniteFieldVerifier
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.confidence import strip_confidence

_FIELD = re.compile(r"GF\((\d+)\)")


def worked_answer(problem: Problem, completion: str) -> float:
    """Returns 1 where the answer is correct and every step leads to it, else 0.

    A correct answer behind a wrong or missing step, or behind steps that begin with a
    guess, is luck: `correctness` pays for it, this does not. ValueError for a problem
    of another task.
    """
    field = _FIELD.search(problem.source)
    if field is None:
        raise ValueError(
            f"problem {problem.id} is of {problem.source}, no finite field"
        )
    worked = strip_confidence(completion)
    if FiniteFieldVerifier().grade(problem, worked).status != "correct":
        return 0.0
    trace = parse_trace(problem.prompt, worked, modulus=int(field[1]))
    return float(trace.first_error is None and trace.consistent_start)
