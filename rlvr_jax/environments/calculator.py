"""The environment `calculator`: a tool that evaluates the policy's expressions.

A turn with `<calc> 48 / 2 + 6 </calc>` is answered by `<result> 30 </result>`, one
result per call. A turn without a call ends the episode, and the problem's verifier
judges the policy's text. A call that cannot be evaluated is answered by
`<result> error </result>`; it is the policy's mistake, and the episode continues.
"""

import dataclasses
import re
from collections.abc import Sequence

from job_jax.schema import NonNegativeInt, PositiveInt
from rlvr_jax.config.environment import Environment
from rlvr_jax.types import Message, Problem, Reply
from rlvr_jax.verifiers.answers.arithmetic import (
    ArithmeticFaultError,
    evaluate_expression,
    format_value,
)

CALL_BEGIN, CALL_END = "<calc>", "</calc>"
RESULT_BEGIN, RESULT_END = "<result>", "</result>"
ERROR = "error"
_CALL = re.compile(r"<calc>([^<>]*)</calc>")
_RESULT = rf"{RESULT_BEGIN}[^<>]*{RESULT_END}"
_RESULTS = re.compile(rf"\s*({_RESULT}(?:\s*{_RESULT})*)\s*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calculator(Environment):
    """Answers `<calc> EXPRESSION </calc>`; a turn without a call ends the episode."""

    max_calls_per_turn: PositiveInt = 4  # more calls in a turn are not answered
    # Results that are not whole or not in 0..largest_result are errors, because a
    # closed vocabulary has no words for them; 0: any result
    largest_result: NonNegativeInt = 0

    def respond(self, problem: Problem, messages: Sequence[Message]) -> Reply:
        """Returns the results of the turn's calls; done if it makes none."""
        calls = _CALL.findall(messages[-1].text)[: self.max_calls_per_turn]
        if not calls:
            return Reply(done=True)
        results = (
            f"{RESULT_BEGIN} {self._work_out(call)} {RESULT_END}" for call in calls
        )
        return Reply(text=" ".join(results), tool_calls=len(calls))

    def demonstrate(self, problem: Problem) -> Sequence[Message]:
        """Returns the problem's worked solution, cut into turns at its results.

        Text between `<result>` and `</result>` is the tool's. Only replies that the
        tool gives are shown, as it writes them. If a result in the data has another
        value, its calls are left out, and the text continues in the same turn.
        """
        if problem.solution is None:
            return ()
        turn, *rest = _RESULTS.split(problem.solution)
        messages: list[Message] = []
        for stated, text in zip(rest[::2], rest[1::2], strict=True):
            asked = Message(role="policy", text=turn)
            reply = self.respond(problem, [asked])
            if not reply.done and _have_equal_values(reply.text, stated):
                messages += [asked, Message(role="environment", text=reply.text)]
                turn = text
            else:
                turn = f"{_CALL.sub('', turn).rstrip()} {text}"
        return (*messages, Message(role="policy", text=turn))

    def vocabulary(self) -> tuple[str, ...]:
        """Returns the tags of calls and results."""
        return (CALL_BEGIN, CALL_END, RESULT_BEGIN, RESULT_END, ERROR)

    @property
    def marks(self) -> tuple[str, ...]:
        """Returns the tags around a call."""
        return (CALL_BEGIN, CALL_END)

    def _work_out(self, expression: str) -> str:
        try:
            value = evaluate_expression(expression)
        except ArithmeticFaultError:
            return ERROR
        is_word = value.denominator == 1 and 0 <= value <= self.largest_result
        return format_value(value) if is_word or not self.largest_result else ERROR


def _have_equal_values(reply: str, stated: str) -> bool:
    """Returns whether two texts of results hold the same numbers, none an error."""
    values = []
    for text in (reply, stated):
        results = re.findall(rf"{RESULT_BEGIN}([^<>]*){RESULT_END}", text)
        try:
            values.append([evaluate_expression(result) for result in results])
        except ArithmeticFaultError:
            return False
    return values[0] == values[1]
