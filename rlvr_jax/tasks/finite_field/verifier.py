"""The verifier `finite_field`: compares one numeral exactly."""

import re
from typing import ClassVar

from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers.statements import Mark
from rlvr_jax.verifiers.base import Verifier

_NUMERAL = re.compile(r"e(0|[1-9][0-9]?)", re.ASCII)
_STATED_ANSWER = re.compile(r"(?:^|\s)answer\s+e[0-9]+\s*$", re.ASCII)


class FiniteFieldVerifier(Verifier):
    """Compares the numeral at the end of a completion with the gold."""

    is_bounded: ClassVar[bool] = False

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Returns correct if the completion ends in `answer X` and X is the gold.

        A gold that is not a numeral cannot grade: `unverified`, never `incorrect`.
        """
        gold = problem.gold
        if not _NUMERAL.fullmatch(gold):
            return Verdict(
                status="unverified", reason=f"gold {gold!r} is not a numeral"
            )
        words = _words_after_marker(completion)
        if not words:
            return Verdict(status="incorrect", reason="no answer")
        answer = words[0]
        if len(words) > 1:
            reason = "text after the answer"
        elif answer != gold:
            reason = f"answered {answer}, gold is {gold}"
        else:
            return Verdict(status="correct", answer=answer)
        return Verdict(status="incorrect", reason=reason, answer=answer)

    def state_gold(self, problem: Problem) -> str:
        """Returns the gold after the word `answer`."""
        return f"answer {problem.gold}"

    def is_well_formed(self, problem: Problem, completion: str) -> bool:
        """Returns whether the completion ends in `answer eN`."""
        return _STATED_ANSWER.search(completion) is not None

    def find_mark(self, problem: Problem, completion: str) -> Mark | None:
        """Returns "statement" if a word follows the last `answer`."""
        return "statement" if _words_after_marker(completion) else None

    def corrupt_gold(self, problem: Problem) -> str:
        """Returns the next smaller numeral, or e1 for e0, which is in the field too."""
        return f"e{abs(int(problem.gold[1:]) - 1)}"


def _words_after_marker(completion: str) -> list[str]:
    """Returns the words after the last `answer`, [] without any."""
    _, marker, after = f" {' '.join(completion.split())} ".rpartition(" answer ")
    return after.split() if marker else []
