"""Makes answers incorrect if the length limit cut them off."""

import dataclasses
from collections.abc import Sequence

from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import strip_confidence

CUT_REASON = "cut by the length limit"


def reject_cut_answers(
    problems: Sequence[Problem],
    completions: Sequence[str],
    verdicts: Sequence[Verdict],
    *,
    was_cut: Sequence[bool],
) -> list[Verdict]:
    """Returns the verdicts, incorrect if an answer touches the end of a cut text.

    `was_cut` says which completions the length limit ended. The problem's verifier says
    whether an answer touches the end (`Verifier.is_cut`). Unverified verdicts do not
    change.
    """
    return [
        dataclasses.replace(verdict, status="incorrect", reason=CUT_REASON, answer=None)
        if cut and verdict.status != "unverified" and _touches_end(problem, completion)
        else verdict
        for problem, completion, verdict, cut in zip(
            problems, completions, verdicts, was_cut, strict=True
        )
    ]


def _touches_end(problem: Problem, completion: str) -> bool:
    """Returns whether the answer may continue; a confidence after it ends it."""
    answer = strip_confidence(completion).rstrip()
    if answer != completion.rstrip() and completion.startswith(answer):
        return False
    return get_verifier(problem.verifier).is_cut(problem, strip_confidence(completion))
