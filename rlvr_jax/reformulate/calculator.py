"""GSM8K's calculator annotations, read as a program and run on an unknown.

A worked solution holds a chain such as <<48/2=24>> <<48+24=72>>. Its literals are the
question's quantities, numbers in its words, and earlier results: a straight-line
program from the quantities to the answer. With z instead of one quantity it is a
rational function f of z. A rewritten problem, "the answer is 72, what is z?", has one
solution if the equation f(z) = 72 has one; these are counted exactly.
"""

import dataclasses
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

from rlvr_jax.reformulate.polynomials import RationalFunction, affine, constant
from rlvr_jax.verifiers.answers.arithmetic import (
    ArithmeticFaultError,
    Tree,
    evaluate_expression,
    parse_expression,
)

_ANNOTATION = re.compile(r"<<([^<>=]{1,200})=([^<>=]{1,40})>>")
_MAX_READINGS = 64
_OPERATIONS: dict[str, Callable[..., RationalFunction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "negative": lambda a: constant(Fraction(0)) - a,
}

Outcome = Literal["verified", "ambiguous", "unchecked"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolutionCheck:
    """Whether the chain of a worked solution verifies one rewrite, and why not.

    `ambiguous`: z is not determined under any reading of the literals. `unchecked`: the
    chain cannot decide it.
    """

    outcome: Outcome
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class _Step:
    """One annotation: an expression over its literals, and the written result."""

    tree: Tree
    literals: tuple[Fraction, ...]
    result: Fraction


class _ChainParseError(ValueError):
    """A chain that is not a program; the message says why."""


def check_unique_solution(
    solution: str,
    *,
    gold: Fraction,
    value: Fraction,
    percent: bool,
    known_numbers: frozenset[Fraction],
) -> SolutionCheck:
    """Returns whether z = `value` is the only solution of "the answer is `gold`".

    `known_numbers` are the numbers in the question, by digit or word, except the masked
    one. A literal may have several readings: the quantity, an earlier result of the
    same size, a word such as "twice". `verified` means under all of them. A masked
    percentage may occur as z, z/100, 1 + z/100 or 1 - z/100.
    """
    unknown = _unknown_forms(value, percent)
    try:
        steps = _parse_chain(solution)
        last = _find_gold_step(steps, gold)
        readings = _enumerate_readings(steps[: last + 1], unknown, known_numbers)
    except _ChainParseError as error:
        return SolutionCheck(outcome="unchecked", reason=str(error))
    solutions = []
    for reading in readings:
        try:
            function = _evaluate_chain(steps[: last + 1], reading)
        except ZeroDivisionError:
            return SolutionCheck(
                outcome="unchecked", reason="the chain divides by zero"
            )
        solutions.append(function.count_solutions(gold))
    if all(count == 1 for count in solutions):
        return SolutionCheck(outcome="verified")
    if all(count != 1 for count in solutions):
        return SolutionCheck(outcome="ambiguous", reason="several solutions")
    return SolutionCheck(
        outcome="unchecked", reason="the chain can be read in several ways"
    )


def _unknown_forms(value: Fraction, percent: bool) -> dict[Fraction, RationalFunction]:
    """Returns the numbers that a chain may write for the unknown, as functions of z."""
    one, hundredth = Fraction(1), Fraction(1, 100)
    forms = {value: affine(Fraction(0), one)}
    if percent:
        for offset, slope in ((0, hundredth), (1, hundredth), (1, -hundredth)):
            forms.setdefault(offset + slope * value, affine(Fraction(offset), slope))
    return forms


def _parse_chain(solution: str) -> list[_Step]:
    """Returns the chain's steps; every step must have the written result."""
    found = _ANNOTATION.findall(solution)
    if not found:
        raise _ChainParseError("no calculator annotations")
    steps = []
    for expression, written in found:
        try:
            tree, literals = parse_expression(expression)
            result = evaluate_expression(written)
        except ArithmeticFaultError as error:
            raise _ChainParseError("an annotation is no arithmetic") from error
        values = [constant(literal) for literal in literals]
        try:
            exact = _evaluate_tree(tree, values.__getitem__).evaluate(Fraction(0))
        except ZeroDivisionError as error:
            raise _ChainParseError("the chain divides by zero") from error
        if exact != result:
            raise _ChainParseError("a result of the chain is rounded or wrong")
        steps.append(_Step(tree, tuple(literals), result))
    return steps


def _find_gold_step(steps: Sequence[_Step], gold: Fraction) -> int:
    """Returns the index of the last step whose result is the gold."""
    for index in range(len(steps) - 1, -1, -1):
        if steps[index].result == gold:
            return index
    raise _ChainParseError("the chain does not arrive at the gold")


def _enumerate_readings(
    steps: Sequence[_Step],
    unknown: dict[Fraction, RationalFunction],
    known_numbers: frozenset[Fraction],
) -> Iterator[tuple[RationalFunction | int, ...]]:
    """Yields possible meanings of the literals: a function, or an earlier step."""
    choices: list[list[RationalFunction | int]] = []
    seen = False
    for index, step in enumerate(steps):
        for literal in step.literals:
            earlier = [k for k in range(index) if steps[k].result == literal]
            options: list[RationalFunction | int] = list(earlier)
            if literal in unknown:
                options.append(unknown[literal])
                seen = True
            if literal in known_numbers:
                options.append(constant(literal))
            if not options:
                raise _ChainParseError("a number of the chain is not in the question")
            choices.append(options)
    if not seen:
        raise _ChainParseError("the quantity is not in the chain")
    count = 1
    for options in choices:
        count *= len(options)
    if count > _MAX_READINGS:
        raise _ChainParseError("the chain can be read in too many ways")
    return itertools.product(*choices)


def _evaluate_chain(
    steps: Sequence[_Step], reading: Sequence[RationalFunction | int]
) -> RationalFunction:
    """Returns the last step's result as a function of z."""
    results: list[RationalFunction] = []
    meanings = iter(reading)
    for step in steps:
        operands = [next(meanings) for _ in step.literals]
        values = [results[each] if isinstance(each, int) else each for each in operands]
        results.append(_evaluate_tree(step.tree, values.__getitem__))
    return results[-1]


def _evaluate_tree(
    tree: Tree, value: Callable[[int], RationalFunction]
) -> RationalFunction:
    if isinstance(tree, int):
        return value(tree)
    operation, *operands = tree
    if operation not in _OPERATIONS:
        raise _ChainParseError("an annotation has a power")
    values = [_evaluate_tree(operand, value) for operand in operands]
    return _OPERATIONS[operation](*values)
