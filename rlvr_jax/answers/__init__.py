"""What a completion gives as its answer, and what number that is; no mathematics.

The standard library alone: a judging worker must start without JAX.
"""

from rlvr_jax.answers.notation import plain
from rlvr_jax.answers.numerals import plain_number, single_number
from rlvr_jax.answers.statements import bare, final_answer, stated_answer

__all__ = [
    "bare",
    "final_answer",
    "plain",
    "plain_number",
    "single_number",
    "stated_answer",
]
