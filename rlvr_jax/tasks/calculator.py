"""GSM8K's calculator annotations, read as a program and run on an unknown.

A worked solution holds a chain such as <<48/2=24>> <<48+24=72>>. Its literals are the
question's quantities, numbers that its words mean, and earlier results: a straight-line
program from the quantities to the answer. With z in the place of one quantity it is a
rational function f of z, and a rewritten problem, "the answer is 72, what is z?", has
one solution if f(z) = 72 has: that is counted exactly.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

from rlvr_jax.tasks.polynomials import Rational, affine, constant

_ANNOTATION = re.compile(r"<<([^<>=]{1,200})=([^<>=]{1,40})>>")
_TOKEN = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+|[-+*/()])", re.ASCII)
_MAX_READINGS = 64

# A tree is the index of a literal, or (operation, left, right).
Tree = int | tuple[str, "Tree", "Tree"]
Outcome = Literal["verified", "several", "unchecked"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """What the chain says of one rewrite, and why where it is not `verified`.

    `several`: z is not determined, whatever the literals mean. `unchecked`: the chain
    does not tell.
    """

    outcome: Outcome
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class _Step:
    """One annotation: an expression over its literals, and the result written."""

    tree: Tree
    literals: tuple[Fraction, ...]
    result: Fraction


class _UnreadableError(ValueError):
    """A chain that is no program; the message says why."""


def check(
    worked: str,
    *,
    gold: Fraction,
    value: Fraction,
    percent: bool,
    known: frozenset[Fraction],
) -> Check:
    """Returns whether z = `value` is the one solution of "the answer is `gold`".

    `known` are the numbers that the question means beside the masked one. A literal
    may have several readings (the quantity, an earlier result of the same size, a word
    such as "twice"); `verified` holds under every one of them. A masked percentage may
    occur as z, z/100, 1 + z/100 or 1 - z/100.
    """
    unknown = _forms(value, percent)
    try:
        steps = _read(worked)
        last = _last(steps, gold)
        readings = _readings(steps[: last + 1], unknown, known)
    except _UnreadableError as error:
        return Check(outcome="unchecked", reason=str(error))
    solutions = []
    for reading in readings:
        try:
            function = _run(steps[: last + 1], reading)
        except ZeroDivisionError:
            return Check(outcome="unchecked", reason="the chain divides by zero")
        solutions.append(function.solutions(gold))
    if all(count == 1 for count in solutions):
        return Check(outcome="verified")
    if all(count != 1 for count in solutions):
        return Check(outcome="several", reason="several solutions")
    return Check(outcome="unchecked", reason="the chain can be read in several ways")


def _forms(value: Fraction, percent: bool) -> dict[Fraction, Rational]:
    """Returns the numbers by which a chain may write the unknown, as functions of z."""
    one, hundredth = Fraction(1), Fraction(1, 100)
    forms = {value: affine(Fraction(0), one)}
    if percent:
        for offset, slope in ((0, hundredth), (1, hundredth), (1, -hundredth)):
            forms.setdefault(offset + slope * value, affine(Fraction(offset), slope))
    return forms


def _read(worked: str) -> list[_Step]:
    """Returns the chain's steps, each of which must come out as written."""
    found = _ANNOTATION.findall(worked)
    if not found:
        raise _UnreadableError("no calculator annotations")
    steps = []
    for expression, written in found:
        tree, literals = _Parser(expression).parse()
        _, [result] = _Parser(written).parse(single=True)
        values = [constant(literal) for literal in literals]
        try:
            exact = _evaluate(tree, values.__getitem__).at(Fraction(0))
        except ZeroDivisionError as error:
            raise _UnreadableError("the chain divides by zero") from error
        if exact != result:
            raise _UnreadableError("a result of the chain is rounded or wrong")
        steps.append(_Step(tree, tuple(literals), result))
    return steps


def _last(steps: Sequence[_Step], gold: Fraction) -> int:
    """Returns the index of the last step that arrives at the gold."""
    for index in range(len(steps) - 1, -1, -1):
        if steps[index].result == gold:
            return index
    raise _UnreadableError("the chain does not arrive at the gold")


def _readings(
    steps: Sequence[_Step],
    unknown: dict[Fraction, Rational],
    known: frozenset[Fraction],
) -> Iterator[tuple[Rational | int, ...]]:
    """Yields what the literals may mean, in order: a function, or an earlier step."""
    choices: list[list[Rational | int]] = []
    seen = False
    for index, step in enumerate(steps):
        for literal in step.literals:
            earlier = [k for k in range(index) if steps[k].result == literal]
            options: list[Rational | int] = list(earlier)
            if literal in unknown:
                options.append(unknown[literal])
                seen = True
            if literal in known:
                options.append(constant(literal))
            if not options:
                raise _UnreadableError("a number of the chain is not in the question")
            choices.append(options)
    if not seen:
        raise _UnreadableError("the quantity is not in the chain")
    count = 1
    for options in choices:
        count *= len(options)
    if count > _MAX_READINGS:
        raise _UnreadableError("the chain can be read in too many ways")
    return itertools.product(*choices)


def _run(steps: Sequence[_Step], reading: Sequence[Rational | int]) -> Rational:
    """Returns the last step's result as a function of z."""
    results: list[Rational] = []
    meanings = iter(reading)
    for step in steps:
        operands = [next(meanings) for _ in step.literals]
        values = [results[each] if isinstance(each, int) else each for each in operands]
        results.append(_evaluate(step.tree, values.__getitem__))
    return results[-1]


def _evaluate(tree: Tree, value: Callable[[int], Rational]) -> Rational:
    if isinstance(tree, int):
        return value(tree)
    operation, left, right = tree
    a, b = _evaluate(left, value), _evaluate(right, value)
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
                raise _UnreadableError("an annotation is no arithmetic")
            self._tokens.append(found[1])
            at = found.end()
        self._literals: list[Fraction] = []

    def parse(self, *, single: bool = False) -> tuple[Tree, list[Fraction]]:
        """Returns the tree and its literals; with `single`, of one number alone."""
        tree = self._sum()
        if self._tokens or (single and not isinstance(tree, int)):
            raise _UnreadableError("an annotation is no arithmetic")
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
                raise _UnreadableError("an annotation is no arithmetic")
            self._tokens.pop(0)
            return tree
        if token == "" or token in "+-*/)":
            raise _UnreadableError("an annotation is no arithmetic")
        self._literals.append(Fraction(token.rstrip(".")))
        return len(self._literals) - 1
