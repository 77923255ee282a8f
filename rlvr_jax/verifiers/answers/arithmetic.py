"""Exact arithmetic on text that a policy writes: + - * / ^ and brackets.

Numbers are fractions, so nothing overflows or is rounded. Lengths and sizes are
bounded, so nothing takes long. Models also write typographic signs for division,
product and minus, thousands as in 1,200, a dollar before a number, and an "=" at the
end. All of these are read.
"""

import operator
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

_MAX_CHARACTERS = 200  # in an expression
_MAX_DIGITS = 40  # in a numerator or denominator, in any intermediate result
_MAX_DEPTH = 20  # of brackets and signs
_MAX_POWER = 200
_TOKEN = re.compile(
    r"\s*(?:\$\s?(?=[0-9.]))?"
    r"([0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])(?:\.[0-9]*)?"  # 1,200.50
    r"|[0-9]+\.?[0-9]*|\.[0-9]+|\*\*|[-+*/^()])",
    re.ASCII,
)
_LIMIT = 10**_MAX_DIGITS
# Other characters for the same operations: division, products, minus signs
_SIGNS = str.maketrans("\u00f7\u00d7\u22c5\u00b7\u2212\u2013", "/***--")


# A literal's index, or an operation ("+", "-", "*", "/", "^", "negative") and its trees
Tree = int | tuple[str, "Tree"] | tuple[str, "Tree", "Tree"]


class ArithmeticFaultError(ValueError):
    """A text that is not an expression, or has no value; the message says why."""


def evaluate_expression(text: str) -> Fraction:
    """Returns the value of an expression. Raises ArithmeticFaultError.

    Example:
        >>> evaluate_expression("(2 + 3) * 4 / 8")
        Fraction(5, 2)
    """
    tree, literals = parse_expression(text)
    return _evaluate(tree, literals)


def parse_expression(text: str) -> tuple[Tree, list[Fraction]]:
    """Returns an expression's tree and its literals. Raises ArithmeticFaultError.

    Example:
        >>> parse_expression("48 / 2 + 7")
        (('+', ('/', 0, 1), 2), [Fraction(48, 1), Fraction(2, 1), Fraction(7, 1)])
    """
    if len(text) > _MAX_CHARACTERS:
        raise ArithmeticFaultError("too long")
    parser = _Parser(_split_tokens(text.translate(_SIGNS)))
    tree = parser.parse_sum(0)
    if parser.next is not None:
        raise ArithmeticFaultError(f"unexpected {parser.next}")
    return tree, parser.literals


def format_value(value: Fraction) -> str:
    """Returns a value as text: an integer, a terminating decimal, or else a fraction.

    Example:
        >>> [format_value(Fraction(n, d)) for n, d in ((6, 3), (5, 2), (1, 3))]
        ['2', '2.5', '1/3']
    """
    if value.denominator == 1:
        return str(value.numerator)
    for digits in range(1, 7):
        scaled = value * 10**digits
        if scaled.denominator == 1:
            whole = str(abs(scaled.numerator)).rjust(digits + 1, "0")
            sign = "-" if value < 0 else ""
            return f"{sign}{whole[:-digits]}.{whole[-digits:]}"
    return str(value)


def _split_tokens(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.rstrip().removesuffix("=").rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ArithmeticFaultError(f"unexpected {text[at:].strip()[:1]}")
        tokens.append(match[1].replace(",", "").replace("**", "^"))
        at = match.end()
    return tokens


class _Parser:
    """Reads tokens by precedence; `next` is the next one, or None at the end."""

    def __init__(self, tokens: list[str]):
        self.literals: list[Fraction] = []
        self._tokens = tokens
        self._at = 0

    @property
    def next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> str:
        if self.next is None:
            raise ArithmeticFaultError("incomplete")
        self._at += 1
        return self._tokens[self._at - 1]

    def parse_sum(self, depth: int) -> Tree:
        tree = self._parse_product(depth)
        while self.next in ("+", "-"):
            tree = (self._take(), tree, self._parse_product(depth))
        return tree

    def _parse_product(self, depth: int) -> Tree:
        tree = self._parse_signed(depth)
        while self.next in ("*", "/"):
            tree = (self._take(), tree, self._parse_signed(depth))
        return tree

    def _parse_signed(self, depth: int) -> Tree:
        if depth > _MAX_DEPTH:
            raise ArithmeticFaultError("too deep")
        if self.next == "+":
            self._take()
            return self._parse_signed(depth + 1)
        if self.next == "-":
            self._take()
            return ("negative", self._parse_signed(depth + 1))
        return self._parse_power(depth)

    def _parse_power(self, depth: int) -> Tree:
        base = self._parse_atom(depth)
        if self.next != "^":
            return base
        return (self._take(), base, self._parse_signed(depth + 1))

    def _parse_atom(self, depth: int) -> Tree:
        token = self._take()
        if token == "(":
            tree = self.parse_sum(depth + 1)
            if self._take() != ")":
                raise ArithmeticFaultError("a bracket is not closed")
            return tree
        if token in ("*", "/", "^", ")"):
            raise ArithmeticFaultError(f"unexpected {token}")
        self.literals.append(Fraction(token))
        return len(self.literals) - 1


def _evaluate(tree: Tree, literals: Sequence[Fraction]) -> Fraction:
    if isinstance(tree, int):
        return _bounded(literals[tree])
    operation, *operands = tree
    values = [_evaluate(operand, literals) for operand in operands]
    return _bounded(_OPERATIONS[operation](*values))


def _divide(a: Fraction, b: Fraction) -> Fraction:
    if b == 0:
        raise ArithmeticFaultError("division by 0")
    return a / b


def _raise_to(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > _MAX_POWER:
        raise ArithmeticFaultError(f"no power of {exponent}")
    if base == 0 and exponent < 0:
        raise ArithmeticFaultError("division by 0")
    return base ** int(exponent)


_OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "^": _raise_to,
    "negative": operator.neg,
}


def _bounded(value: Fraction) -> Fraction:
    if abs(value.numerator) >= _LIMIT or value.denominator >= _LIMIT:
        raise ArithmeticFaultError("too large")
    return value
