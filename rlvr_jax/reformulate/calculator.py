"""GSM8K's calculator annotations, read as a program and run on an unknown.

A worked solution holds a chain such as <<48/2=24>> <<48+24=72>>. Its literals are the
question's quantities, numbers in its words, and earlier results: a straight-line
program from the quantities to the answer. With z instead of one quantity it is a
rational function f of z. A rewritten problem, "the answer is 72, what is z?", has one
solution if the equation f(z) = 72 has one; these are counted exactly.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

from rlvr_jax.reformulate.polynomials import RationalFunction, affine, constant

_ANNOTATION = re.compile(r"<<([^<>=]{1,200})=([^<>=]{1,40})>>")
_TOKEN = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+|[-+*/()])", re.ASCII)
_MAX_READINGS = 64

# A tree is the index of a literal, or (operation, left, right).
Tree = int | tuple[str, "Tree", "Tree"]
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
        tree, literals = _Parser(expression).parse()
        _, [result] = _Parser(written).parse(single=True)
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
    operation, left, right = tree
    a, b = _evaluate_tree(left, value), _evaluate_tree(right, value)
    return {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[
        operation
    ](b)


class _Parser:
    """Arithmetic with + - * / and parentheses, by recursive descent."""

    def __init__(self, text: str):
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _ChainParseError("an annotation is no arithmetic")
            self._tokens.append(found[1])
            at = found.end()
        self._literals: list[Fraction] = []

    def parse(self, *, single: bool = False) -> tuple[Tree, list[Fraction]]:
        """Returns the tree and its literals; with `single` it must be one number."""
        tree = self._sum()
        if self._tokens or (single and not isinstance(tree, int)):
            raise _ChainParseError("an annotation is no arithmetic")
        return tree, self._literals

    def _sum(self) -> Tree:
        tree = self._product()
        while self._tokens and self._tokens[0] in "+-":
            tree = (self._tokens.pop(0), tree, self._product())
        return tree

    def _product(self) -> Tree:
        tree = self._factor()
        while self._tokens and self._tokens[0] in "*/":
            tree = (self._tokens.pop(0), tree, self._factor())
        return tree

    def _factor(self) -> Tree:
        token = self._tokens.pop(0) if self._tokens else ""
        if token == "(":
            tree = self._sum()
            if self._tokens[:1] != [")"]:
                raise _ChainParseError("an annotation is no arithmetic")
            self._tokens.pop(0)
            return tree
        if token == "" or token in "+-*/)":
            raise _ChainParseError("an annotation is no arithmetic")
        self._literals.append(Fraction(token.rstrip(".")))
        return len(self._literals) - 1
