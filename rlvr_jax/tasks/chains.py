"""Chains of steps in GF(p): the arithmetic, and the prompt that states them.

A chain takes a start value through labelled steps (add, or multiply, by an element
that is not zero) to a result. Both steps are bijections, so a chain can be worked from
either end. Grammar and examples: docs/finite_field.md.
"""

import dataclasses
import string
from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["evaluation", "inversion"]

LABELS = string.ascii_lowercase  # step labels, a ring of 26
UNDO = {"+": "-", "*": "/"}  # what a backward trace writes for each step


class Step(NamedTuple):
    """One step of a chain: `k + e2` is Step("k", "+", 2) under fixed symbols."""

    label: str
    op: str
    operand: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
    """A start, steps, a result, of which one end is known.

    An evaluation is given its start and asks the result; an inversion is given its
    result and asks the start. `given` is None where the prompt writes `!`, the answer
    of the chain before.
    """

    kind: Kind
    given: int | None
    steps: tuple[Step, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What a prompt states: one chain, or two in a composition.

    `symbols[v]` is the numeral that stands for value v; there are `modulus` of them.
    """

    chains: tuple[Chain, ...]
    symbols: tuple[str, ...]
    permuted: bool

    @property
    def modulus(self) -> int:
        """Returns p, the number of elements of the field."""
        return len(self.symbols)


def numerals(modulus: int) -> tuple[str, ...]:
    """Returns e0 .. e{p-1}, the symbols of the values 0 .. p-1 when fixed."""
    return tuple(f"e{value}" for value in range(modulus))


def apply(value: int, op: str, operand: int, modulus: int) -> int:
    """Returns `value op operand` in GF(modulus) for one of + - * /.

    ValueError for another op, and for division by zero.
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


def trajectory(chain: Chain, given: int, modulus: int) -> list[int]:
    """Returns the len(steps) + 1 values of a chain, start first, result last."""
    values = [given]
    if chain.kind == "evaluation":
        for step in chain.steps:
            values.append(apply(values[-1], step.op, step.operand, modulus))
        return values
    for step in reversed(chain.steps):
        values.append(apply(values[-1], UNDO[step.op], step.operand, modulus))
    return values[::-1]


def answer(chain: Chain, values: Sequence[int]) -> int:
    """Returns the end of a trajectory that the chain asks for."""
    return values[-1] if chain.kind == "evaluation" else values[0]


def solve(question: Question) -> list[list[int]]:
    """Returns each chain's trajectory; the last chain's answer is the gold."""
    solved: list[list[int]] = []
    carried = 0  # never read: the first chain's given is a number
    for chain in question.chains:
        given = carried if chain.given is None else chain.given
        solved.append(trajectory(chain, given, question.modulus))
        carried = answer(chain, solved[-1])
    return solved


def backward(question: Question, solved: Sequence[Sequence[int]]) -> Question:
    """Returns the question that gives this one's answer and asks what it was given.

    Evaluation and inversion change places; the chains of a composition also change
    order. Steps are bijections, so the answer is unique, and asking backward twice
    gives the question itself. Worked example in GF(7): `evaluate : e3 k + e2 = ?`
    (gold e5) becomes `invert : ? k + e2 = e5` (gold e3).
    """
    other: dict[Kind, Kind] = {"evaluation": "inversion", "inversion": "evaluation"}
    known: int | None = answer(question.chains[-1], solved[-1])
    chains = []
    for chain in reversed(question.chains):
        chains.append(dataclasses.replace(chain, kind=other[chain.kind], given=known))
        known = None  # the next one is given what this one answers
    return dataclasses.replace(question, chains=tuple(chains))


def write_prompt(question: Question) -> str:
    """Returns the prompt, its words separated by single spaces.

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
        given = "!" if chain.given is None else symbols[chain.given]
        first, last = (given, "?") if chain.kind == "evaluation" else ("?", given)
        steps = [f"{label} {op} {symbols[x]}" for label, op, x in chain.steps]
        sides.append(" ".join([first, *steps, "=", last]))
    words.append(" then ".join(sides))
    return " ".join(words)


def parse_prompt(prompt: str, *, modulus: int) -> Question:
    """Returns the question that a prompt states, the inverse of `write_prompt`.

    ValueError, with the prompt, where it is no finite-field prompt of this modulus.
    """
    try:
        return _parse(prompt.split(), modulus)
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"not a prompt of GF({modulus}): {prompt!r} ({error})"
        ) from error


def _parse(words: list[str], modulus: int) -> Question:
    symbols = numerals(modulus)
    permuted = words[0] == "map"
    if permuted:
        end = words.index(";")
        if sorted(words[1:end]) != sorted(symbols):
            raise ValueError("the map is no permutation of the numerals")
        symbols, words = tuple(words[1:end]), words[end + 1 :]
    task, colon, *rest = words
    if colon != ":":
        raise ValueError(f"{colon!r} stands where a colon must")
    value_of = {symbol: value for value, symbol in enumerate(symbols)}
    parts = [rest]
    if task == "compose":
        cut = rest.index("then")
        parts = [rest[:cut], rest[cut + 1 :]]
    chains = tuple(_parse_chain(part, value_of) for part in parts)
    carried = [chain.given is None for chain in chains]
    if task == "compose":
        expected = carried == [False, True]
    else:
        kind = {"evaluate": "evaluation", "invert": "inversion"}[task]
        expected = carried == [False] and chains[0].kind == kind
    if not expected:
        raise ValueError(f"the given values do not fit {task!r}")
    return Question(chains=chains, symbols=symbols, permuted=permuted)


def _parse_chain(words: list[str], value_of: dict[str, int]) -> Chain:
    first, *body, equals, last = words
    if equals != "=" or (first == "?") == (last == "?"):
        raise ValueError("a chain has one `?`, and `=` before its result")
    if not body or len(body) % 3:
        raise ValueError("a step is a label, an operation and an operand")
    steps = tuple(
        Step(label, op, value_of[operand])
        for label, op, operand in zip(body[::3], body[1::3], body[2::3], strict=True)
    )
    for label, op, operand in steps:
        if len(label) != 1 or label not in LABELS or op not in UNDO or operand == 0:
            raise ValueError(f"no step: {label} {op} {operand}")
    given = last if first == "?" else first
    return Chain(
        kind="inversion" if first == "?" else "evaluation",
        given=None if given == "!" else value_of[given],
        steps=steps,
    )
