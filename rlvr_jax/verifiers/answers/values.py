r"""Gives answers with the same value the same text, without a parser.

maj@k and the entropy of answers count with it, so that 1/2, 0.5 and \frac12 are one
answer.
"""

import re

from rlvr_jax.verifiers.answers.formulas import tidy_formula
from rlvr_jax.verifiers.answers.notation import normalize_notation
from rlvr_jax.verifiers.answers.numerals import parse_single_number
from rlvr_jax.verifiers.answers.statements import strip_delimiters

_NAME = re.compile(r"[A-Za-z]\s*=\s*(?=[^=]*$)")
_MAX_CHARACTERS = 1000


def write_normal_form(answer: str) -> str:
    r"""Returns a text that equal answers share, as far as their text shows it.

    >>> [write_normal_form(text) for text in ("1/2", "0.50", r"\frac12", "x = 1/2")]
    ['1/2', '1/2', '1/2', '1/2']
    """
    if len(answer) > _MAX_CHARACTERS:
        return answer
    text = tidy_formula(strip_delimiters(normalize_notation(answer)))
    number = parse_single_number(text)
    if number is not None:
        return str(number)
    return "".join(_NAME.sub("", text, count=1).split()) or answer
