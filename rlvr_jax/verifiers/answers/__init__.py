"""Finds the answer that a completion gives, and reads it as a number; no mathematics.

Uses only the standard library, because a grading worker must start without JAX.
"""

from rlvr_jax.verifiers.answers.cut import touches_end
from rlvr_jax.verifiers.answers.formulas import tidy_formula
from rlvr_jax.verifiers.answers.inequalities import write_sets_alike
from rlvr_jax.verifiers.answers.limits import describe_cost
from rlvr_jax.verifiers.answers.mismatches import describe_mismatch
from rlvr_jax.verifiers.answers.notation import normalize_notation
from rlvr_jax.verifiers.answers.numerals import (
    have_different_bases,
    join_digit_groups,
    parse_decimal,
    parse_single_number,
    read_decimal_comma,
)
from rlvr_jax.verifiers.answers.prose import describe_prose
from rlvr_jax.verifiers.answers.solutions import write_solutions_alike
from rlvr_jax.verifiers.answers.statements import (
    Mark,
    extract_answer,
    extract_marked_answer,
    find_mark,
    read_whole_statement,
    strip_delimiters,
)
from rlvr_jax.verifiers.answers.units import (
    drop_currency,
    drop_rate,
    have_different_units,
    join_units,
)
from rlvr_jax.verifiers.answers.values import write_normal_form

__all__ = [
    "Mark",
    "describe_cost",
    "describe_mismatch",
    "describe_prose",
    "drop_currency",
    "drop_rate",
    "extract_answer",
    "extract_marked_answer",
    "find_mark",
    "have_different_bases",
    "have_different_units",
    "join_digit_groups",
    "join_units",
    "normalize_notation",
    "parse_decimal",
    "parse_single_number",
    "read_decimal_comma",
    "read_whole_statement",
    "strip_delimiters",
    "tidy_formula",
    "touches_end",
    "write_normal_form",
    "write_sets_alike",
    "write_solutions_alike",
]
