"""What a verifier is, and how to bring one of your own.

Example (`mine.py` beside the recipe; a problem names it: `verifier="mine:Rounded"`):

    class Rounded(Verifier):
        def grade(self, problem, completion):
            answer = extract_answer(completion, problem.answer_format)
            if not answer:
                return Verdict(status="incorrect", reason="no final answer")
            is_close = abs(float(answer) - float(problem.gold)) < 0.5
            return Verdict(status="correct" if is_close else "incorrect", answer=answer)
"""

import abc
import functools
import re
from collections.abc import Coroutine
from typing import Any, ClassVar

from job_jax.calls import CallLimits
from job_jax.registry import Registry
from job_jax.schema import ConfigError
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers import Mark, extract_marked_answer, find_mark

VERIFIERS = Registry(
    "verifier",
    {
        "math": "rlvr_jax.verifiers.math:Math",
        "numeric": "rlvr_jax.verifiers.math:Numeric",
        "exact": "rlvr_jax.verifiers.exact:Exact",
        "code": "rlvr_jax.verifiers.code:Code",
        "finite_field": "rlvr_jax.tasks.finite_field.verifier:FiniteFieldVerifier",
        "reasoning_gym": "rlvr_jax.tasks.reasoning_gym.verifier:ReasoningGymVerifier",
        "judge": "rlvr_jax.verifiers.judge:JudgeVerifier",
    },
)

_MAX_CHARACTERS = 16_384  # of a completion's end that are searched for an answer
_DIGIT = re.compile("[0-9]")


class Verifier(abc.ABC):
    """Grades completions of a problem. Subclass it for a verifier of your own.

    Only `grade` must be written, as a `def` or, if it waits for others, an `async def`,
    of which many run at a time. It returns `unverified` where it cannot tell. What it
    raises, or does not return within its time limit, is `unverified` too, and counted;
    where that happens to all completions of a step the run ends.
    """

    # Time limit and calls at a time of `grade`; None: those of the section `verifier`.
    limits: CallLimits | None = None
    # Whether `grade` is called within limits; without, what it raises ends the run.
    is_bounded: ClassVar[bool] = True
    # Whether golds are graded before a run, each against itself.
    checks_golds: ClassVar[bool] = True

    # Whether worker processes with a time limit grade for it (mathematics alone).
    pooled: ClassVar[bool] = False
    # Whether `grade` looks where a problem's answer_format says.
    reads_answer_format: ClassVar[bool] = False
    # Whether, with answer_format "any", the answer is all of a completion.
    reads_whole_text: ClassVar[bool] = False

    @abc.abstractmethod
    def grade(
        self, problem: Problem, completion: str
    ) -> Verdict | Coroutine[Any, Any, Verdict]:
        """Returns whether the completion answers the problem correctly."""

    def state_gold(self, problem: Problem) -> str:
        """Returns a completion that states the problem's gold as the problem asks.

        The check of golds before a run grades it: it must be correct.
        """
        gold = extract_marked_answer(problem.gold) or problem.gold
        if problem.answer_format == "tagged":
            return f"<answer>{gold}</answer>"
        if self.reads_whole_text and problem.answer_format == "any":
            return problem.gold
        return f"\\boxed{{{gold}}}"

    def describe_gold_fault(self, problem: Problem) -> str:
        """Returns why no answer that is written will equal the gold, "" if one may.

        The check of golds before a run asks this as well: a gold may be equal to
        itself, as the same text, and to nothing else.
        """
        return ""

    def is_well_formed(self, problem: Problem, completion: str) -> bool:
        """Returns whether an answer stands where `grade` looks, correct or not.

        boxed, tagged: the last complete box or tag holds something; any: something is
        marked as the answer by a tag, a box, "####" or "answer is".
        """
        text = completion[-_MAX_CHARACTERS:]
        if self.reads_whole_text and problem.answer_format == "any":
            return bool(text.strip())
        return bool(extract_marked_answer(text, problem.answer_format))

    def is_cut(self, problem: Problem, completion: str) -> bool:
        """Returns whether the answer may continue after the end of the completion.

        Asked of completions that the length limit ended: such an answer is incorrect.
        By default never, since only `grade` knows where it looks.
        """
        return False

    def find_mark(self, problem: Problem, completion: str) -> Mark | None:
        """Returns how the completion marks its answer, None where it does not."""
        return find_mark(completion[-_MAX_CHARACTERS:], problem.answer_format)

    def corrupt_gold(self, problem: Problem) -> str:
        """Returns a gold that is false, the same at every call (a control reward).

        The first digit is one larger, 8 for 9: never 0, which might come to stand
        under a fraction. A gold without digits becomes 1.
        """
        gold = extract_marked_answer(problem.gold) or problem.gold
        digit = _DIGIT.search(gold)
        if digit is None:
            return "1"
        other = min(int(digit[0]) + 1, 17 - int(digit[0]))
        return f"{gold[: digit.start()]}{other}{gold[digit.end() :]}"


@functools.cache
def get_verifier(name: str) -> Verifier:
    """Returns the verifier of that name, ours or "package.module:Class".

    Raises ConfigError where there is none.
    """
    verifier_class = VERIFIERS.load(name)
    is_class = isinstance(verifier_class, type)
    if not (is_class and issubclass(verifier_class, Verifier)):
        raise ConfigError(
            f"verifier {name!r} is no subclass of rlvr_jax.verifiers.base.Verifier; "
            "derive it from that class"
        )
    return verifier_class()
