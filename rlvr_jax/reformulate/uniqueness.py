r"""Whether the formulas of a question leave one value for its unknown number.

Only questions that consist of formulas are read: "Compute $..$.", "If $..=..$ and
$..=..$, what is $x + y$?", "Let $f(x) = ..$. Find $f(2)$." and the like. With z instead
of one number, and the answer given, they are equations, rational in their letters.

All letters except z are eliminated (by SymPy, with a Groebner basis), and the real
roots of the rest are counted exactly (by Sturm's theorem). One root means one z.
Several roots are reported as several solutions, although with other letters some may
not be solutions. A question without this form stays unchecked.
"""

import re
from fractions import Fraction
from typing import Any, NamedTuple

from rlvr_jax.reformulate.calculator import SolutionCheck
from rlvr_jax.reformulate.latex import end_of_group

_MAX_CHARS, _MAX_EQUATIONS, _MAX_CALLS = 200, 3, 10
_FORMULA = r"(?:\$\$?[^$]+\$\$?|\\\[.+?\\\])"
_ASKED = rf"(?:the (?:exact )?value of )?(?P<asked>{_FORMULA})"
_GIVEN = rf"(?P<given>{_FORMULA}(?:,? and {_FORMULA})*)"
_END = (
    r"(?: in your head| in simplest form| as (?:a|an) [a-z ]+)?\s*[.?]?"
    r"(?:\s*(?:Express|Give|Write) your answer [^.$]*\.)?"
)
_VERBS = (
    r"(?:Compute|Evaluate|Calculate|Simplify|Find|Determine|What is|Write|Convert|"
    r"Express)"
)
_TEMPLATES = tuple(
    re.compile(template + _END, re.DOTALL | re.IGNORECASE)
    for template in (
        rf"{_VERBS}:? {_ASKED}",
        rf"(?:If|Given|Given that|Suppose|Suppose that|Let|Let that) {_GIVEN}\s*[,.]? "
        rf"(?:then )?{_VERBS} {_ASKED}",
        rf"{_VERBS} {_ASKED},? (?:if|given that|given|such that|when|where) {_GIVEN}",
        rf"Solve (?:the (?:following )?equation )?for {_ASKED}\s*[:.,]? *{_GIVEN}",
        rf"Solve (?:the (?:following )?equation )?{_GIVEN} for {_ASKED}",
        rf"{_GIVEN}\s*[.,]? Solve for {_ASKED}",
        rf"(?:For )?what value of {_ASKED} (?:is|does|makes|will make) {_GIVEN}"
        r"(?: true)?",
    )
)
_WORDS = ("frac", "dfrac", "tfrac", "sqrt", "cdot", "times", "div", "left", "right")
_ARITHMETIC = re.compile(r"[0-9a-zA-Z+\-*/^(){}., \n]*")
_LARGE_POWER = re.compile(r"\^\s*(?:\{\s*[^{}]{2,}\}|\{?\s*[(\\])")
_FUNCTION = re.compile(r"\s*([a-zA-Z])\(([a-zA-Z])\)\s*")


class _Question(NamedTuple):
    """A question's formulas: equations, functions by name, the sought expression."""

    equations: list[tuple[str, str]]
    functions: dict[str, tuple[str, str]]  # argument, body
    asked: str


class _FormulaError(ValueError):
    """A question that cannot be decided; the message says why."""


def check_unique_formula(
    question: str, *, gold: Fraction, value: Fraction, unknown: str
) -> SolutionCheck:
    """Returns whether `unknown` = `value` is the only real solution of the question.

    `question` has the letter `unknown` instead of one number, and its answer is `gold`.
    """
    try:
        parsed = _parse_question(question.strip())
        expressions = _read_expressions(parsed, gold, unknown)
        polynomial = _eliminate(expressions, unknown, value)
    except _FormulaError as error:
        return SolutionCheck(outcome="unchecked", reason=str(error))
    if polynomial.count_roots() == 1:
        return SolutionCheck(outcome="verified")
    return SolutionCheck(outcome="ambiguous", reason="several solutions")


def _parse_question(question: str) -> _Question:
    for template in _TEMPLATES:
        if found := template.fullmatch(question):
            break
    else:
        raise _FormulaError("the question is more than formulas")
    equations, functions = [], {}
    for formula in re.findall(_FORMULA, found.groupdict().get("given") or ""):
        left, *right = _bare(formula).split("=")
        if len(right) != 1:
            raise _FormulaError("a condition is no equation")
        if function := _FUNCTION.fullmatch(left):
            functions[function[1]] = (function[2], right[0])
        else:
            equations.append((left, right[0]))
    if len(equations) > _MAX_EQUATIONS:
        raise _FormulaError("the question has many equations")
    return _Question(equations, functions, _bare(found["asked"]))


def _bare(formula: str) -> str:
    """Returns a formula without its delimiters and final punctuation."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\[", "\\]")):
        if formula.startswith(opening):
            formula = formula.removeprefix(opening).removesuffix(closing)
            break
    return formula.strip(" .,\n")


def _read_expressions(question: _Question, gold: Fraction, unknown: str) -> list[Any]:
    """Returns the SymPy expressions that are all zero if the answer is `gold`."""
    import sympy  # noqa: PLC0415 - slow; needed only for formulas

    def read(formula: str) -> Any:
        written_out = _apply_functions(formula, question.functions)
        # This is a product, because the unknown is a number, not a function.
        return _read(re.sub(rf"(?<=[0-9){unknown}])\s*\(", r"\\cdot (", written_out))

    answer = sympy.Rational(gold.numerator, gold.denominator)
    return [read(question.asked) - answer] + [
        read(left) - read(right) for left, right in question.equations
    ]


def _apply_functions(formula: str, functions: dict[str, tuple[str, str]]) -> str:
    """Returns a formula with calls such as f(2) written out, outer calls first."""
    for _ in range(_MAX_CALLS):
        names = "".join(functions) or "0"  # no name, no call
        call = re.search(rf"(?<![a-zA-Z\\])([{names}])\(", formula)
        if call is None:
            return formula
        argument, body = functions[call[1]]
        start, end = call.end() - 1, end_of_group(formula, call.end() - 1)
        written_out = _substitute(body, argument, formula[start:end])
        formula = f"{formula[: call.start()]}({written_out}){formula[end:]}"
    raise _FormulaError("a formula has many calls")


def _substitute(formula: str, letter: str, given: str) -> str:
    """Returns a formula with `given` for a letter, except in command names."""
    return re.sub(
        rf"\\[a-zA-Z]+|{letter}",
        lambda part: given if part[0] == letter else part[0],
        formula,
    )


def _read(formula: str) -> Any:
    """Returns a formula as a SymPy expression with exact numbers."""
    import sympy  # noqa: PLC0415
    from latex2sympy2_extended import latex2sympy  # noqa: PLC0415

    words = re.sub(rf"\\(?:{'|'.join(_WORDS)})(?![a-zA-Z])", " ", formula)
    if (
        len(formula) > _MAX_CHARS
        or not _ARITHMETIC.fullmatch(words)
        or _LARGE_POWER.search(formula)
        or re.search(r"[a-zA-Z]\s*\(", words)  # function or product: ambiguous
    ):
        raise _FormulaError("a formula is more than arithmetic")
    braced = re.sub(r"(frac\{[^{}]*\})([0-9a-zA-Z])", r"\1{\2}", formula)
    try:
        return sympy.nsimplify(latex2sympy(braced), rational=True)
    except Exception as error:  # the parser raises nothing narrower
        raise _FormulaError("a formula is not read") from error


def _eliminate(expressions: list[Any], unknown: str, value: Fraction) -> Any:
    """Returns the polynomial in only the unknown that must be zero.

    Raises _FormulaError if there is none, or if `value` is not a root of it.
    """
    import sympy  # noqa: PLC0415

    z = sympy.Symbol(unknown)
    tops = []
    for expression in expressions:
        top, bottom = sympy.fraction(sympy.cancel(sympy.together(expression)))
        letters = top.free_symbols | bottom.free_symbols
        if not (top.is_polynomial(*letters) and bottom.is_polynomial(*letters)):
            raise _FormulaError("a formula is not rational in its letters")
        tops.append(top)
    others = sorted(set().union(*(top.free_symbols for top in tops)) - {z}, key=str)
    if not any(z in top.free_symbols for top in tops):
        raise _FormulaError("the quantity does not matter to the formulas")
    try:
        basis = sympy.groebner(tops, *others, z, order="lex", domain=sympy.QQ)
    except sympy.CoercionFailed as error:
        raise _FormulaError("a formula has numbers that are not rational") from error
    alone = [each for each in basis.exprs if each.free_symbols == {z}]
    if not alone:
        raise _FormulaError("the formulas leave the quantity open")
    polynomial = sympy.Poly(alone[-1], z, domain=sympy.QQ)
    if polynomial.eval(sympy.Rational(value.numerator, value.denominator)) != 0:
        raise _FormulaError("the formulas do not give the gold")
    return polynomial
