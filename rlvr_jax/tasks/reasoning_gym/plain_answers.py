"""Decides which answers may reach a scorer of reasoning-gym.

Some scorers pass the answer to Python's `eval`, or to sympy's `parse_expr`, which calls
`eval`. Others repeat a move as often as the answer says. Text from a model must never
be executed, so these answers are parsed first. Lists of plain values and formulas of
bounded size pass; any other answer is incorrect.
"""

import ast
import re
from fractions import Fraction

# Scorers that evaluate the answer as Python (they give partial credit for a list
# instead of a grid), or as a formula.
EVALUATED = frozenset(
    {"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"}
)
FORMULAS = frozenset(
    {
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
    }
)
# Scorers that repeat a move as often as the answer says, or raise 10 to its exponent.
_COUNTED = frozenset({"rubiks_cube", "rush_hour"})
_POWERS_OF_TEN = frozenset({"coin_flip"})

_LITERAL_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load),
    *(ast.List, ast.Tuple, ast.UnaryOp, ast.USub),
)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_FUNCTIONS = frozenset(
    {
        "Abs",
        "exp",
        "ln",
        "log",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
        "acot",
        "asinh",
        "acosh",
        "atanh",
    }
)
_MAX_LENGTH = 4000  # characters of a formula
_MAX_NUMBER = 10**12
_MAX_EXPONENT = 100
_MAX_DEPTH = 200  # the depth of a sum is its number of terms
_MAX_SIZE = 2000  # numbers and names in a formula, with powers multiplied out
_LONG_COUNT = re.compile(r"\d{4}")
_LARGE_EXPONENT = re.compile(r"[eE][+-]?\d{3}")
_GLUED_LETTER = re.compile(r"[0-9][A-Za-z_]|\.\.")  # 1e9, 0x1, 2j, 1_000


def describe_unsafe_answer(name: str, answer: str) -> str:
    """Returns why an answer must not reach the generator's scorer, "" if it may."""
    if name in EVALUATED and not _is_literal_or_no_python(answer):
        return "not a grid or a list of values"
    if name in FORMULAS and not is_bounded_formula(answer):
        return "not a formula of numbers, names and known functions, or too large"
    if name in _COUNTED and _LONG_COUNT.search(answer):
        return "a count with more than three digits"
    if name in _POWERS_OF_TEN and _LARGE_EXPONENT.search(answer):
        return "an exponent with more than two digits"
    return ""


def _is_literal_or_no_python(text: str) -> bool:
    """Returns whether evaluating the text as Python has no effect.

    A grid is a syntax error, and names are only looked up.
    """
    tree = _parse(text)
    return tree is None or all(isinstance(n, _LITERAL_NODES) for n in ast.walk(tree))


def is_bounded_formula(text: str) -> bool:
    """Returns whether the text is a formula that can be evaluated quickly.

    >>> is_bounded_formula("(3 + x**2)/2 - exp(-x)"), is_bounded_formula("9**9**9")
    (True, False)
    """
    if len(text) > _MAX_LENGTH or not text.isascii() or _GLUED_LETTER.search(text):
        return False
    tree = _parse(text)
    if not isinstance(tree, ast.Expression):
        return False
    size = _formula_size(tree.body, _MAX_DEPTH)
    return size is not None and size <= _MAX_SIZE


def _parse(text: str) -> ast.AST | None:
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _formula_size(node: ast.AST, depth: int) -> int | None:
    """Returns how many numbers and names a formula has, None if it is not a formula.

    A power counts its base as often as its exponent says. So nested powers, which give
    huge numbers or long expansions, count as large. Also returns None if the formula is
    nested deeper than `depth`.
    """
    if depth == 0:
        return None
    match node:
        case ast.Constant(value=int() | float() as value) if (
            not isinstance(value, bool) and abs(value) <= _MAX_NUMBER
        ):
            return 1
        case ast.Name(id=name) if not name.startswith("_"):
            return 1
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
            return _formula_size(inner, depth - 1)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _formula_size(left, depth - 1), _constant(right, depth - 1)
            if base is None or exponent is None or abs(exponent) > _MAX_EXPONENT:
                return None
            return base * max(1, int(abs(exponent)))
        case ast.BinOp(left=left, op=operator, right=right) if isinstance(
            operator, _OPERATORS
        ):
            sizes = [_formula_size(side, depth - 1) for side in (left, right)]
            return None if None in sizes else sizes[0] + sizes[1]  # type: ignore[operator]
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if (
            name in _FUNCTIONS
        ):
            return _formula_size(argument, depth - 1)
    return None


def _constant(node: ast.AST, depth: int) -> Fraction | None:
    """Returns an exponent's value: a number, a quotient of two, or one of them negated.

    Returns None for anything else.
    """
    if depth == 0:
        return None
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(
            value, bool
        ):
            return Fraction(value) if abs(value) <= _MAX_NUMBER else None
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            exponent = _constant(inner, depth - 1)
            return None if exponent is None else -exponent
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            above, below = _constant(left, depth - 1), _constant(right, depth - 1)
            if above is None or not below:
                return None
            return above / below
    return None
