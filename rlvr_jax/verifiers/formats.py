"""Whether a completion states its answer in the form asked for, right or wrong."""

import re

from rlvr_jax.answers import stated_answer
from rlvr_jax.types import Problem

_FIELD_ANSWER = re.compile(r"(?:^|\s)answer\s+e[0-9]+\s*$", re.ASCII)
_END = 16_384  # characters; what the verifiers read of a completion


def well_formed(problem: Problem, completion: str) -> bool:
    """Returns whether the answer stands where the problem's verifier is told to look.

    finite_field: the completion ends in `answer eN`; boxed, tagged: the last complete
    box or tag holds something; any: something is marked as the answer, be it by a tag,
    a box, "####" or "answer is", except that an `exact` answer is the whole text.
    """
    text = completion[-_END:]
    if problem.kind == "finite_field":
        return _FIELD_ANSWER.search(text) is not None
    if problem.kind == "exact" and problem.answer_form == "any":
        return bool(text.strip())
    return bool(stated_answer(text, problem.answer_form))
