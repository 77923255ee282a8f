"""The environment `finite_field_steps`: one step per turn, and whether it holds.

The policy writes one step of a finite-field trace in each turn, and reads `right` or
`wrong`; after `wrong` it may try again. A turn that begins with `answer` ends the
episode. A step holds if it is the next one in the strategy that the first turn names,
and follows from the prompt and the steps that held.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from job_jax.schema import check
from rlvr_jax.config.environment import Environment
from rlvr_jax.tasks import FiniteFieldTask
from rlvr_jax.tasks.finite_field.chains import parse_prompt, solve
from rlvr_jax.tasks.finite_field.traces import (
    DIRECT_STRATEGY,
    parse_trace,
    write_trace,
)
from rlvr_jax.types import Message, Problem, Reply
from rlvr_jax.verifiers.confidence import STATEMENTS

RIGHT, WRONG, ANSWER = "right", "wrong", "answer"
_HEADER_WORDS, _STEP_WORDS = 2, 6  # `forward :`, `k e3 + e2 = e5`
_FIELD = re.compile(r"GF\(([0-9]+)\)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiniteFieldSteps(Environment):
    """Requests one step of a finite-field trace at a time; says whether it holds."""

    def respond(self, problem: Problem, messages: Sequence[Message]) -> Reply:
        """Returns `right` or `wrong`; done after an answer."""
        *_, (text, holds) = _judged_turns(problem, messages)
        if text.split()[:1] == [ANSWER]:
            return Reply(done=True)
        return Reply(text=RIGHT if holds else WRONG)

    def demonstrate(self, problem: Problem) -> Sequence[Message]:
        """Returns the trace that only calculates, one step per turn.

        The last turn states a confidence if the worked solution does.
        """
        question = parse_prompt(problem.prompt, modulus=_modulus(problem))
        strategy = DIRECT_STRATEGY[question.chains[0].kind]
        words = write_trace(question, solve(question), [strategy]).split()
        ends = [*range(_HEADER_WORDS + _STEP_WORDS, len(words), _STEP_WORDS)]
        messages = []
        for start, end in zip([0, *ends], ends, strict=False):
            step = " ".join(words[start:end])
            messages.append(Message(role="policy", text=step))
            messages.append(Message(role="environment", text=RIGHT))
        last = " ".join(words[ends[-1] :])
        if (stated := (problem.solution or "").rsplit(" ", 1)[-1]) in STATEMENTS:
            last += f" {stated}"
        return (*messages, Message(role="policy", text=last))

    def completion(self, problem: Problem, messages: Sequence[Message]) -> str:
        """Returns the trace: the steps that held, and the last turn."""
        turns = list(_judged_turns(problem, messages))
        return " ".join(
            text
            for at, (text, holds) in enumerate(turns, 1)
            if holds or at == len(turns)
        )

    def vocabulary(self) -> tuple[str, ...]:
        """Returns the two answers."""
        return (RIGHT, WRONG)

    def check_config(self, config: Any) -> None:
        """Raises ConfigError if problems may have several chains, or none."""
        super().check_config(config)
        task = config.task
        check(
            isinstance(task, FiniteFieldTask),
            f"environment.name={self.tags()[self.tag]} checks steps of finite-field "
            f"chains, and task.source={task.tags()[task.tag]} has none; set "
            "task.source=finite_field",
        )
        for stage, mix in (
            ("sft", task.sft),
            ("train", task.train),
            ("eval", task.eval),
        ):
            check(
                "composition" not in mix.types,
                f"environment.name={self.tags()[self.tag]} checks the steps of one "
                f"chain, and task.{stage}.types={mix.types} has several; leave "
                "composition out",
            )


def _judged_turns(
    problem: Problem, messages: Sequence[Message]
) -> Iterator[tuple[str, bool]]:
    """Yields each of the policy's turns, and whether it is a step that holds."""
    held: list[str] = []
    for message in messages:
        if message.role != "policy":
            continue
        words = message.text.split()
        trace = " ".join([*held, *words])
        report = parse_trace(problem.prompt, trace, modulus=_modulus(problem))
        holds = (
            len(words) == _STEP_WORDS + (0 if held else _HEADER_WORDS)
            and len(report.step_correct) == 1 + len(held) // _STEP_WORDS
            and all(report.step_correct)
            and report.consistent_start
        )
        if holds:
            held += words
        yield message.text, holds


def _modulus(problem: Problem) -> int:
    """Returns p of the field that a problem's source names."""
    found = _FIELD.search(problem.source)
    if found is None:
        raise ValueError(f"{problem.source!r} is no finite field")
    return int(found[1])
