r"""Numbers inside the LaTeX formulas of a question.

A formula is text between `$..$`, `$$..$$`, `\(..\)` or `\[..\]`. Dollars delimit a
formula by the rule of pandoc's markdown: no space follows the first or precedes the
second, and no digit follows the second. So "$5 and $7" has no formula.
"""

import re
from collections.abc import Iterator

NUMBER = r"\d{1,3}(?:(?:,|\{,\}|,\\!)\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
_FORMULA = re.compile(
    r"\$\$(?:.+?)\$\$|\\\[.+?\\\]|\\\(.+?\\\)"
    r"|(?<!\\)\$(?=\S)(?:\\\$|[^$])*?(?<=\S)(?<!\\)\$(?!\d)",
    re.DOTALL | re.ASCII,
)
_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
# A number, or a fraction of two whole numbers.
_NUMBER = re.compile(
    rf"\\[dt]?frac\s*(?:\{{\d+\}}\s*\{{\d+\}}|\d\s*\d|\{{\d+\}}\s*\d|\d\s*\{{\d+\}})"
    rf"|{NUMBER}",
    re.ASCII,
)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_TEXT = re.compile(r"\\(?:text|mbox|textbf|mathrm|operatorname)\s*\{[^{}]*\}")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{?(\d+?)\}?\s*\{?(\d+)\}?", re.ASCII)
# Commands whose argument is only the first of several digits: \binom 52, \sqrt 12.
_TAKES_A_DIGIT = re.compile(r"\\(?:[dt]?binom|cfrac|sqrt)\s*(?:\d\s*)?$", re.ASCII)
# 1 000, 2\ 000, 2\,000: one number in groups, not several.
GROUPED = re.compile(
    r"(?<![\d.,])\d{1,3}(?:(?: |~|\\[ ,;:!]|\{ \})\d{3})+(?!\d)", re.ASCII
)


def find_formulas(text: str) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of each formula, its delimiters included."""
    for found in _FORMULA.finditer(text):
        yield found.span()


def find_drawings(text: str) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of each Asymptote drawing."""
    for found in _DRAWING.finditer(text):
        yield found.span()


def find_formula_numbers(formula: str) -> Iterator[tuple[int, int, bool]]:
    r"""Yields (start, end, is_quantity) of the numbers of a formula, in order.

    These numbers are not quantities: exponents, indices and the degree of `\sqrt[..]`;
    numbers with a base (`12_3`), after a letter (`x2`) or with a bare comma (`500,500`
    may be two); several digits after a command that takes one (`\binom 52`); groups of
    one number (`1\ 000`); and all numbers that an environment lays out.
    """
    scripts = [*_scripts(formula), *(g.span() for g in GROUPED.finditer(formula))]
    for found in _NUMBER.finditer(formula):
        start, end = found.span()
        before = formula[:start]
        is_behind_letter = before[-1:].isalpha() and not re.search(
            r"\\[a-zA-Z]+$", before
        )
        is_quantity = not (
            is_behind_letter
            or (len(found[0]) > 1 and _TAKES_A_DIGIT.search(before))
            or formula[end : end + 1] == "_"
            or "\\begin" in formula
            or re.search(r"\d,\d", found[0])
            or any(low <= start < high for low, high in scripts)
        )
        yield start, end, is_quantity


def has_letter(formula: str, letter: str) -> bool:
    """Returns whether a formula has the variable `letter`, in either case."""
    return letter in _COMMAND.sub(" ", _TEXT.sub(" ", formula)).lower()


def split_fraction(text: str) -> tuple[str, str] | None:
    r"""Returns the numerals of `\frac{3}{4}` and the like, or None for other texts."""
    found = _FRACTION.fullmatch(text)
    return (found[1], found[2]) if found else None


def plain_number(text: str) -> str:
    r"""Returns a numeral without its thousands separators: `1{,}000` is 1000."""
    return re.sub(r",\\!|\{,\}|,", "", text)


def _scripts(formula: str) -> Iterator[tuple[int, int]]:
    r"""Yields (start, end) of exponents, indices and the degrees of `\sqrt[..]`."""
    for found in re.finditer(r"[\^_]\s*|\\sqrt\s*(?=\[)", formula):
        start = found.end()
        opening = formula[start : start + 1]
        if opening in ("{", "["):
            yield start, end_of_group(formula, start)
        elif command := _COMMAND.match(formula, start):
            yield start, command.end()
        else:
            yield start, start + 1


def end_of_group(formula: str, start: int) -> int:
    """Returns the end of the group that opens at `start`, or of the formula."""
    opening, depth = formula[start], 0
    closing = {"{": "}", "[": "]", "(": ")"}[opening]
    for at in range(start, len(formula)):
        depth += (formula[at] == opening) - (formula[at] == closing)
        if depth == 0:
            return at + 1
    return len(formula)
