"""Worked traces of finite-field questions: written for training, read for telemetry.

A forward trace starts from the start value and follows the steps. A backward trace
starts from the result and undoes the steps, last one first. The question gives only one
of the two ends. So each kind of chain has one strategy that only calculates (forward
for an evaluation, backward for an inversion) and one that starts with a guess. Each
step restates the running value, so it can be checked alone.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rlvr_jax.tasks.finite_field.chains import (
    INVERSE_OP,
    STEP_LABELS,
    Chain,
    ChainStep,
    Question,
    apply_operation,
    chain_answer,
    parse_prompt,
    split_words,
)
from rlvr_jax.tasks.finite_field.mix import Strategy

FACTORS = ("step", "operation", "value", "direction")
UNKNOWN = -1

_HEADER_WORDS = 2  # `forward :`
_STEP_WORDS = 6  # label, running value, operation, operand, `=`, new value
# The strategy that calculates from the given end; the other one starts with a guess.
DIRECT_STRATEGY: dict[str, Strategy] = {
    "evaluation": "forward",
    "inversion": "backward",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceReport:
    """The steps that a completion wrote. Made by `parse_trace`, read by the task.

    `strategy` is "mixed" if the parts of a composition differ, and "none" if no part
    begins like a trace.
    `step_correct` is true for each written step that restates the prompt's step
    (undone, if backward), starts from the value written before it, and calculates
    correctly. The first step may start from any value. A step after a slip can be
    right again.
    `first_error` is the position of the first step that is wrong, missing or surplus.
    All steps before it are right.
    `consistent_start`: the first step of every part starts from the value that the
    prompt gives (for `!`, the answer of the previous part), not from a guess.
    `complete`: no step of the question is missing.
    `answer`: the word after the last `answer`.
    """

    strategy: Literal["forward", "backward", "mixed", "none"]
    step_correct: tuple[bool, ...]
    first_error: int | None
    consistent_start: bool
    complete: bool
    answer: str | None


class _WrittenStep(NamedTuple):
    """A step as written: `k e3 + e2 = e5` takes 3 to 5."""

    step: ChainStep
    value_before: int
    value_after: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TracePart:
    """One part of a completion: its header, and the steps before the first non-step."""

    strategy: Strategy
    steps: tuple[_WrittenStep, ...]

    @property
    def start(self) -> int | None:
        """Returns the value that the first step starts from, None without a step."""
        return self.steps[0].value_before if self.steps else None


def write_trace(
    question: Question, values: Sequence[Sequence[int]], strategies: Sequence[Strategy]
) -> str:
    """Returns the worked solution of a question, with one strategy per part.

    `values` is `chains.solve(question)`. Worked example in GF(7): for
    `evaluate : e3 k + e2 l * e4 = ?` the forward solution is
    `forward : k e3 + e2 = e5 l e5 * e4 = e6 answer e6`.
    """
    symbols = question.symbols
    parts = []
    for chain, chain_values, strategy in zip(
        question.chains, values, strategies, strict=True
    ):
        line = list(chain_values) if strategy == "forward" else chain_values[::-1]
        words = [strategy, ":"]
        steps = zip(
            _expected_steps(chain, strategy), itertools.pairwise(line), strict=True
        )
        for (label, op, operand), (before, after) in steps:
            words += [label, symbols[before], op, symbols[operand], "=", symbols[after]]
        parts.append(" ".join(words))
    last = symbols[chain_answer(question.chains[-1], values[-1])]
    return f"{' then '.join(parts)} answer {last}"


def parse_trace(prompt: str, completion: str, *, modulus: int) -> TraceReport:
    """Returns the steps that a completion wrote; accepts any completion.

    The prompt must be ours: raises ValueError if it is not a prompt of GF(modulus).
    Steps are matched by position. A part is read up to the first text that is not a
    step.
    """
    question = parse_prompt(prompt, modulus=modulus)
    words = completion.split()
    value_of = {symbol: value for value, symbol in enumerate(question.symbols)}
    written = [_parse_part(part, value_of) for part in split_words(words, "then")]
    chains = question.chains

    steps: list[bool] = []
    first_error: int | None = None
    complete = consistent = True
    carried: int | None = None  # the answer of the previous part
    for index in range(max(len(chains), len(written))):
        part = written[index] if index < len(written) else None
        chain = chains[index] if index < len(chains) else None
        wanted = len(chain.steps) if chain else 0
        marks = _check_steps(part, chain, modulus) if part else []
        if first_error is None and (not all(marks) or len(marks) != wanted):
            right = marks.index(False) if False in marks else len(marks)
            first_error = len(steps) + right
        steps += marks
        complete = complete and len(marks) >= wanted
        if chain:
            given = carried if chain.input_value is None else chain.input_value
            consistent = consistent and _starts_from(part, chain, given)
            carried = _part_answer(part, chain)
    return TraceReport(
        strategy=_overall_strategy([part.strategy for part in written if part]),
        step_correct=tuple(steps),
        first_error=first_error,
        consistent_start=consistent,
        complete=complete,
        answer=_parse_answer(words),
    )


def label_words(words: Sequence[str], symbols: Sequence[str]) -> dict[str, list[int]]:
    """Returns labels for each word of a completion, by the names in FACTORS.

    step       index of the word's step in its part, from 0
    operation  operation of that step, as an index into "+*-/"
    value      running value as written: up to the `=` the value before the step, then
               the value after it
    direction  0 in a forward part, 1 in a backward part

    A word without a value for a factor has UNKNOWN.
    """
    value_of = {symbol: value for value, symbol in enumerate(symbols)}
    found = {name: [UNKNOWN] * len(words) for name in FACTORS}
    start = 0
    for part_words in split_words(words, "then"):
        end = start + len(part_words)
        if part := _parse_part(part_words, value_of):
            found["direction"][start:end] = [part.strategy == "backward"] * (
                end - start
            )
            for index, (step, before, after) in enumerate(part.steps):
                at = start + _HEADER_WORDS + index * _STEP_WORDS
                of_step = slice(at, at + _STEP_WORDS)
                found["step"][of_step] = [index] * _STEP_WORDS
                found["operation"][of_step] = ["+*-/".index(step.op)] * _STEP_WORDS
                found["value"][of_step] = [before] * (_STEP_WORDS - 1) + [after]
        start = end + 1
    return {name: [int(value) for value in values] for name, values in found.items()}


def step_start_value(words: Sequence[str], step: int) -> str:
    """Returns the running value that a step of a one-part completion starts from."""
    return words[_HEADER_WORDS + step * _STEP_WORDS + 1]


def _expected_steps(chain: Chain, strategy: Strategy) -> Sequence[ChainStep]:
    """Returns the steps that a correct trace writes, in order."""
    if strategy == "forward":
        return chain.steps
    return [step._replace(op=INVERSE_OP[step.op]) for step in reversed(chain.steps)]


def _parse_part(words: list[str], value_of: dict[str, int]) -> _TracePart | None:
    """Returns a part up to its first unreadable word, None without a header."""
    match words:
        case ["forward", ":", *rest]:
            strategy: Strategy = "forward"
        case ["backward", ":", *rest]:
            strategy = "backward"
        case _:
            return None
    steps = []
    for at in range(0, len(rest) - _STEP_WORDS + 1, _STEP_WORDS):
        label, before, op, operand, equals, after = rest[at : at + _STEP_WORDS]
        if not (
            len(label) == 1
            and label in STEP_LABELS
            and op in ("+", "*", "-", "/")
            and equals == "="
            and {before, operand, after} <= value_of.keys()
        ):
            break
        step = ChainStep(label, op, value_of[operand])
        steps.append(_WrittenStep(step, value_of[before], value_of[after]))
    return _TracePart(strategy=strategy, steps=tuple(steps))


def _check_steps(part: _TracePart, chain: Chain | None, modulus: int) -> list[bool]:
    """Returns for each written step whether it is expected and calculated correctly."""
    expected = _expected_steps(chain, part.strategy) if chain else ()
    marks, running = [], part.start
    for index, (step, before, after) in enumerate(part.steps):
        marks.append(
            index < len(expected)
            and step == expected[index]
            and before == running
            and after == apply_operation(before, step.op, step.operand, modulus)
        )
        running = after
    return marks


def _starts_from(
    part: _TracePart | None, chain: Chain, input_value: int | None
) -> bool:
    """Returns whether a part starts from `input_value`; None after an earlier False."""
    return (
        part is not None
        and part.strategy == DIRECT_STRATEGY[chain.kind]
        and part.start == input_value
    )


def _part_answer(part: _TracePart | None, chain: Chain) -> int | None:
    """Returns the answer that a part's own values give, None if it has none."""
    if part is None or not part.steps:
        return None
    if part.strategy == DIRECT_STRATEGY[chain.kind]:
        return part.steps[-1].value_after
    return part.start


def _overall_strategy(
    part_strategies: list[Strategy],
) -> Literal["forward", "backward", "mixed", "none"]:
    if not part_strategies:
        return "none"
    return part_strategies[0] if len(set(part_strategies)) == 1 else "mixed"


def _parse_answer(words: list[str]) -> str | None:
    """Returns the word after the last `answer`, None without one."""
    after = split_words(words, "answer")[1:]
    return after[-1][0] if after and after[-1] else None
