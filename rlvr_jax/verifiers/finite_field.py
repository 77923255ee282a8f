"""Exact verdicts on finite-field answers: one numeral, nothing to interpret."""

import re

from rlvr_jax.types import Problem, Verdict

_NUMERAL = re.compile(r"e(0|[1-9][0-9]?)", re.ASCII)


def judge(problem: Problem, completion: str) -> Verdict:
    """Returns right if the completion ends in `answer X` with X the gold.

    A gold that is no numeral cannot be judged against: `unjudged`, never `wrong`.
    """
    if not _NUMERAL.fullmatch(problem.gold):
        return Verdict(status="unjudged", reason=f"gold {problem.gold!r} is no numeral")
    _, found, after = f" {' '.join(completion.split())} ".rpartition(" answer ")
    words = after.split()
    if not found or not words:
        return Verdict(status="wrong", reason="no answer")
    given = words[0]
    if len(words) > 1:
        reason = "text after the answer"
    elif given != problem.gold:
        reason = f"answered {given}, gold is {problem.gold}"
    else:
        return Verdict(status="right", answer=given)
    return Verdict(status="wrong", reason=reason, answer=given)
