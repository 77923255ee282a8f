"""What a completion gives as its answer, and what number that is; no mathematics.

The standard library alone: a judging worker must start without JAX.
"""

from rlvr_jax.verifiers.answers.notation import normalize_notation
from rlvr_jax.verifiers.answers.numerals import parse_decimal, parse_single_number
from rlvr_jax.verifiers.answers.statements import (
    extract_answer,
    extract_marked_answer,
    strip_delimiters,
)

__all__ = [
    "extract_answer",
    "extract_marked_answer",
    "normalize_notation",
    "parse_decimal",
    "parse_single_number",
    "strip_delimiters",
]
