"""Chains of steps in GF(p): the arithmetic, and the prompt that states them.

A chain leads from a start value through labeled steps to a result. Each step adds, or
multiplies by, an element that is not zero. Both are bijections, so a chain can be
worked from either end. Grammar and examples: docs/lab/finite_field.md.
"""

import dataclasses
import string
from collections.abc import Sequence
from typing import Literal, NamedTuple

ChainKind = Literal["evaluation", "inversion"]

STEP_LABELS = string.ascii_lowercase  # consecutive steps; `a` follows `z`
INVERSE_OP = {"+": "-", "*": "/"}  # the operation that undoes each step


class ChainStep(NamedTuple):
    """One step of a chain: `k + e2` is ChainStep("k", "+", 2) under fixed symbols."""

    label: str
    op: str
    operand: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
    """A start, steps and a result; the prompt states either the start or the result.

    An evaluation states the start, and the answer is the result. An inversion states
    the result, and the answer is the start. `input_value` is the stated value; None
    means that the prompt writes `!`, the answer of the previous chain.
    """

    kind: ChainKind
    input_value: int | None
    steps: tuple[ChainStep, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """The content of a prompt: one chain, or several in a composition.

    `symbols[v]` is the numeral for value v; there are `modulus` of them.
    """

    chains: tuple[Chain, ...]
    symbols: tuple[str, ...]
    permuted: bool

    @property
    def modulus(self) -> int:
        """Returns p, the number of elements of the field."""
        return len(self.symbols)


def numerals(modulus: int) -> tuple[str, ...]:
    """Returns e0 .. e{p-1}, the fixed symbols of the values 0 .. p-1."""
    return tuple(f"e{value}" for value in range(modulus))


def apply_operation(value: int, op: str, operand: int, modulus: int) -> int:
    """Returns `value op operand` in GF(modulus), where op is one of + - * /.

    Raises ValueError for any other op, and for division by zero.
    """
    if op == "+":
        return (value + operand) % modulus
    if op == "-":
        return (value - operand) % modulus
    if op == "*":
        return value * operand % modulus
    if op == "/":
        return value * pow(operand, -1, modulus) % modulus
    raise ValueError(f"unknown operation {op!r}; choose among + - * /")


def chain_values(chain: Chain, input_value: int, modulus: int) -> list[int]:
    """Returns the len(steps) + 1 values of a chain, start first, result last."""
    values = [input_value]
    if chain.kind == "evaluation":
        for step in chain.steps:
            values.append(apply_operation(values[-1], step.op, step.operand, modulus))
        return values
    for step in reversed(chain.steps):
        values.append(
            apply_operation(values[-1], INVERSE_OP[step.op], step.operand, modulus)
        )
    return values[::-1]


def chain_answer(chain: Chain, values: Sequence[int]) -> int:
    """Returns the answer of a chain: its last value, or its first for an inversion."""
    return values[-1] if chain.kind == "evaluation" else values[0]


def solve(question: Question) -> list[list[int]]:
    """Returns the values of each chain; the answer of the last chain is the gold."""
    values: list[list[int]] = []
    carried = 0  # never read: the first chain states its own value
    for chain in question.chains:
        input_value = carried if chain.input_value is None else chain.input_value
        values.append(chain_values(chain, input_value, question.modulus))
        carried = chain_answer(chain, values[-1])
    return values


def invert_question(question: Question, values: Sequence[Sequence[int]]) -> Question:
    """Returns the reverse question, which states the answer; its gold is the input.

    Evaluations become inversions and the other way round, and the chains of a
    composition are reversed. Steps are bijections, so the answer is unique, and
    inverting twice gives the original question. Worked example in GF(7):
    `evaluate : e3 k + e2 = ?` (gold e5) becomes `invert : ? k + e2 = e5` (gold e3).
    """
    inverse: dict[ChainKind, ChainKind] = {
        "evaluation": "inversion",
        "inversion": "evaluation",
    }
    input_value: int | None = chain_answer(question.chains[-1], values[-1])
    chains = []
    for chain in reversed(question.chains):
        chains.append(
            dataclasses.replace(
                chain, kind=inverse[chain.kind], input_value=input_value
            )
        )
        input_value = None  # the next chain starts from this one's answer
    return dataclasses.replace(question, chains=tuple(chains))


def split_words(words: Sequence[str], separator: str) -> list[list[str]]:
    """Returns the words between separators: one list more than there are separators."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def write_prompt(question: Question) -> str:
    """Returns the prompt, with single spaces between words.

    Worked example: `compose : ? k + e2 = e5 then ! l * e4 = ?` inverts one step and
    evaluates another from the answer.
    """
    symbols = question.symbols
    words = ["map", *symbols, ";"] if question.permuted else []
    if len(question.chains) > 1:
        words.append("compose :")
    elif question.chains[0].kind == "evaluation":
        words.append("evaluate :")
    else:
        words.append("invert :")
    sides = []
    for chain in question.chains:
        given = "!" if chain.input_value is None else symbols[chain.input_value]
        first, last = (given, "?") if chain.kind == "evaluation" else ("?", given)
        steps = [f"{label} {op} {symbols[x]}" for label, op, x in chain.steps]
        sides.append(" ".join([first, *steps, "=", last]))
    words.append(" then ".join(sides))
    return " ".join(words)


def parse_prompt(prompt: str, *, modulus: int) -> Question:
    """Returns the question that a prompt states; the inverse of `write_prompt`.

    Raises ValueError, quoting the prompt, if it is not a prompt of GF(modulus).
    """
    try:
        return _parse_question(prompt.split(), modulus)
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"not a prompt of GF({modulus}): {prompt!r} ({error})"
        ) from error


def _parse_question(words: list[str], modulus: int) -> Question:
    symbols = numerals(modulus)
    permuted = words[0] == "map"
    if permuted:
        end = words.index(";")
        if sorted(words[1:end]) != sorted(symbols):
            raise ValueError("the map is not a permutation of the numerals")
        symbols, words = tuple(words[1:end]), words[end + 1 :]
    task, colon, *rest = words
    if colon != ":":
        raise ValueError(f"expected a colon, found {colon!r}")
    value_of = {symbol: value for value, symbol in enumerate(symbols)}
    parts = [rest]
    if task == "compose":
        parts = split_words(rest, "then")
    chains = tuple(_parse_chain(part, value_of) for part in parts)
    carried = [chain.input_value is None for chain in chains]
    if task == "compose":
        expected = len(chains) > 1 and carried == [False] + [True] * (len(chains) - 1)
    else:
        kind = {"evaluate": "evaluation", "invert": "inversion"}[task]
        expected = carried == [False] and chains[0].kind == kind
    if not expected:
        raise ValueError(f"the given values do not fit {task!r}")
    return Question(chains=chains, symbols=symbols, permuted=permuted)


def _parse_chain(words: list[str], value_of: dict[str, int]) -> Chain:
    first, *body, equals, last = words
    if equals != "=" or (first == "?") == (last == "?"):
        raise ValueError("a chain needs one `?`, and `=` before its result")
    if not body or len(body) % 3:
        raise ValueError("a step is a label, an operation and an operand")
    steps = tuple(
        ChainStep(label, op, value_of[operand])
        for label, op, operand in zip(body[::3], body[1::3], body[2::3], strict=True)
    )
    for label, op, operand in steps:
        if (
            len(label) != 1
            or label not in STEP_LABELS
            or op not in INVERSE_OP
            or operand == 0
        ):
            raise ValueError(f"not a step: {label} {op} {operand}")
    given = last if first == "?" else first
    return Chain(
        kind="inversion" if first == "?" else "evaluation",
        input_value=None if given == "!" else value_of[given],
        steps=steps,
    )
