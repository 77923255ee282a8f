"""The base class of verifiers; subclass it to write your own.

Example (`mine.py` next to the recipe; a problem names it: `verifier="mine:Rounded"`):

    class Rounded(Verifier):
        def grade(self, problem, completion):
            answer = extract_answer(completion, problem.answer_format)
            if not answer:
                return Verdict(status="incorrect", reason="no final answer")
            is_close = abs(float(answer) - float(problem.gold)) < 0.5
            return Verdict(status="correct" if is_close else "incorrect", answer=answer)
"""

import abc
import dataclasses
import functools
import re
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from job_jax.calls import CallLimits, CallResult, call_each
from job_jax.registry import Registry, find_places
from job_jax.schema import ConfigError
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers.limits import MAX_COMPLETION_CHARACTERS
from rlvr_jax.verifiers.answers.statements import Mark, extract_marked_answer, find_mark

if TYPE_CHECKING:  # `rlvr_jax.verify` reads no config, which would load JAX
    from rlvr_jax.config import VerifierConfig
    from rlvr_jax.config.judge import JudgeConfig

VERIFIERS = Registry(
    "verifier",
    find_places("rlvr_jax.verifiers.built_in")
    | {
        "finite_field": "rlvr_jax.tasks.finite_field.verifier:FiniteFieldVerifier",
        "reasoning_gym": "rlvr_jax.tasks.reasoning_gym.verifier:ReasoningGymVerifier",
        "judge": "rlvr_jax.verifiers.judge:JudgeVerifier",
    },
)

_DIGIT = re.compile("[0-9]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradingSession:
    """What verifiers need to be opened for a run. Written by `grader.Grader`.

    `limits` bound the calls of verifiers without limits of their own. `share` returns
    the same resource for the same name, made at the first request; the grader closes
    it.
    """

    config: "VerifierConfig"
    judge: "JudgeConfig"
    limits: CallLimits
    share: Callable[[str, Callable[[], Any]], Any]


class Verifier(abc.ABC):
    """Grades completions of a problem. Subclass it to write your own verifier.

    You only have to write `grade`: as a `def` or, if it waits for something, as an
    `async def`, so that many calls run at the same time. It returns `unverified` if it
    cannot decide. If it raises or exceeds its time limit, the verdict is `unverified`
    too, and counted as a failure. If all completions of a step fail, the run ends.
    """

    # Time limit and concurrency of `grade`; None: the section `verifier` sets them.
    limits: CallLimits | None = None
    # Whether `grade` is called with limits; without them, its errors end the run.
    is_bounded: ClassVar[bool] = True
    # Whether `grade` also looks at `problem.other_golds`. Otherwise it is called again
    # with each of them as the gold, until one is correct.
    reads_other_golds: ClassVar[bool] = False
    # Whether each gold is graded against itself before a run.
    checks_golds: ClassVar[bool] = True

    # Whether `grade` looks for the answer where the problem's answer_format says.
    reads_answer_format: ClassVar[bool] = False
    # Whether the answer is the whole completion if answer_format is "any".
    reads_whole_text: ClassVar[bool] = False

    @abc.abstractmethod
    def grade(
        self, problem: Problem, completion: str
    ) -> Verdict | Coroutine[Any, Any, Verdict]:
        """Returns whether the completion answers the problem correctly."""

    def open(self, session: GradingSession) -> "Verifier":
        """Returns the verifier for a run: by default this one.

        One with processes, connections or settings returns a new one.
        """
        return self

    def check_ready(self) -> None:  # noqa: B027 (optional, like the next three)
        """Raises CallError or ConfigError if an opened verifier cannot grade here."""

    def check_problem(self, problem: Problem) -> None:  # noqa: B027
        """Raises ConfigError if the settings do not fit problems like this one.

        Called once before a run, with the first problem that the verifier grades.
        """

    def keep_state(self, directory: Path) -> None:  # noqa: B027
        """Loads what an earlier attempt of the run saved there, and saves there."""

    def close(self) -> None:  # noqa: B027
        """Ends what `open` began."""

    def grade_batch(
        self, items: Sequence[tuple[Problem, str]], limits: CallLimits
    ) -> list[Verdict]:
        """Returns a verdict on each completion, by `grade`. Override it to share work.

        `limits` bound each call if the verifier has none of its own.
        """
        if self.is_bounded:
            outcomes = call_each(self.grade, items, self.limits or limits)
            return list(map(_to_verdict, outcomes))
        return [self.grade(*item) for item in items]  # type: ignore[misc]

    def state_gold(self, problem: Problem) -> str:
        """Returns a completion that states the gold in the problem's answer format.

        The gold check before a run grades it, and it must be correct.
        """
        gold = extract_marked_answer(problem.gold) or problem.gold
        if problem.answer_format == "tagged":
            return f"<answer>{gold}</answer>"
        if self.reads_whole_text and problem.answer_format == "any":
            return problem.gold
        return f"\\boxed{{{gold}}}"

    def describe_gold_fault(self, problem: Problem) -> str:
        """Returns why no written answer can equal the gold, "" if one can.

        The gold check before a run needs this too, because some golds equal only
        themselves, as the same text.
        """
        return ""

    def is_well_formed(self, problem: Problem, completion: str) -> bool:
        """Returns whether there is an answer where `grade` looks, correct or not.

        boxed, tagged: the last complete box or tag is not empty; any: a tag, a box,
        "####" or "answer is" marks an answer.
        """
        text = completion[-MAX_COMPLETION_CHARACTERS:]
        if self.reads_whole_text and problem.answer_format == "any":
            return bool(text.strip())
        return bool(extract_marked_answer(text, problem.answer_format))

    def is_cut(self, problem: Problem, completion: str) -> bool:
        """Returns whether the answer may continue after the end of the completion.

        Only called if the length limit ended the completion. A cut answer is incorrect.
        The default is False, because only `grade` knows where it looks.
        """
        return False

    def find_mark(self, problem: Problem, completion: str) -> Mark | None:
        """Returns how the completion marks its answer, None if it does not."""
        return find_mark(completion[-MAX_COMPLETION_CHARACTERS:], problem.answer_format)

    def answer_value(self, problem: Problem, verdict: Verdict) -> str | None:
        """Returns a text that all answers with the verdict's value share.

        maj@k and the entropy of answers group completions by it. The default is the
        answer's own text. None if the completion gives no answer.
        """
        return verdict.answer

    def corrupt_gold(self, problem: Problem) -> str:
        """Returns a false gold, the same at every call (a control reward).

        The first digit becomes one larger, and 9 becomes 8. It never becomes 0, which
        could be a denominator. A gold without digits becomes 1.
        """
        gold = extract_marked_answer(problem.gold) or problem.gold
        digit = _DIGIT.search(gold)
        if digit is None:
            return "1"
        other = min(int(digit[0]) + 1, 17 - int(digit[0]))
        return f"{gold[: digit.start()]}{other}{gold[digit.end() :]}"


@functools.cache
def get_verifier(name: str) -> Verifier:
    """Returns the verifier with a name, ours or "package.module:Class".

    Raises ConfigError for an unknown name.
    """
    verifier_class = VERIFIERS.load(name)
    is_class = isinstance(verifier_class, type)
    if not (is_class and issubclass(verifier_class, Verifier)):
        raise ConfigError(
            f"verifier {name!r} is not a subclass of rlvr_jax.verifiers.base.Verifier; "
            "derive it from that class"
        )
    return verifier_class()


def _to_verdict(outcome: CallResult) -> Verdict:
    """Returns a verifier's verdict; `unverified` with the reason if it failed."""
    verdict, failure, reason, seconds = outcome
    if failure is None and not isinstance(verdict, Verdict):
        failure, reason = "error", f"returned {verdict!r:.60}, which is not a Verdict"
    if failure is not None:
        verdict = Verdict(status="unverified", reason=reason, failure=failure)
    return dataclasses.replace(verdict, seconds=seconds)
