"""A reward that does not pay for lucky answers.

Give it to `train.reward.names` by its full name:
--config.train.reward.names=rlvr_jax.tasks.finite_field.rewards:worked_answer
"""

import re

from rlvr_jax.tasks.finite_field.traces import parse_trace
from rlvr_jax.tasks.finite_field.verifier import FiniteFieldVerifier
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.confidence import strip_confidence

_FIELD = re.compile(r"GF\((\d+)\)")


def worked_answer(problem: Problem, completion: str) -> float:
    """Returns 1 if the answer is correct and every step leads to it, else 0.

    A correct answer is luck if a step is wrong or missing, or if the steps start from
    a guess: `correctness` pays for it, this reward does not. Raises ValueError for a
    problem of another task.
    """
    verdict = FiniteFieldVerifier().grade(problem, strip_confidence(completion))
    has_steps = has_worked_steps(problem, completion)
    return float(verdict.status == "correct" and has_steps)


def has_worked_steps(problem: Problem, completion: str) -> bool:
    """Returns whether every step is written, right, and starts from no guess.

    It does not read the answer after the steps. Raises ValueError for a problem of
    another task.
    """
    field = _FIELD.search(problem.source)
    if field is None:
        raise ValueError(
            f"problem {problem.id} is from {problem.source}, not from finite_field"
        )
    steps = strip_confidence(completion)
    trace = parse_trace(problem.prompt, steps, modulus=int(field[1]))
    return trace.first_error is None and trace.consistent_start
