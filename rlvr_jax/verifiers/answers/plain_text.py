r"""Writes plain-text mathematics as LaTeX: pi/2, 4*x**3, sqrt(2), x^(1/2), x <= 3."""

import re

_GREEK = "pi|theta|alpha|beta|delta|lambda|sigma|omega|phi|tau|epsilon"
_FUNCTIONS = "sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|arcsin|arccos|arctan"
_TEXT = r"\\(?:text|mathrm|mbox|operatorname|begin|end)\s*\{[^{}]*\}"
_NAME = re.compile(
    rf"(?P<kept>{_TEXT}|\\[A-Za-z]+)|(?<![A-Za-z\\])(?:(?P<symbol>{_GREEK})"
    r"|(?P<infinity>infinity|infty|inf|(?:^|(?<=[-+(,\[ ]))oo)"
    rf"|(?P<function>{_FUNCTIONS}))(?![A-Za-z])"
)
_POWER = re.compile(r"(?<=[\w)}\]])\s*\*\*\s*(?=[-\w(\\{])")
_PRODUCT = re.compile(r"(?<=[\w)}\]!])\s*\*\s*(?=[\w(\\{])")
_EXPONENT = re.compile(r"\^\s*(-?\d{2,}|-\d|-[A-Za-z])(?![\d.])")
_FRACTION_EXPONENT = re.compile(r"\^\s*\(")
_CALL = re.compile(r"(?<![A-Za-z\\])(sqrt|cbrt|exp|abs)\s*\(")
_ROOT = re.compile(r"(?<![A-Za-z\\])(sqrt|cbrt)\s*(\d+|[A-Za-z])(?![A-Za-z])")
_CALLS = {
    "sqrt": r"\sqrt{%s}",
    "cbrt": r"\sqrt[3]{%s}",
    "exp": "e^{%s}",
    "abs": "|%s|",
}
_RELATIONS = (
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"(?<=[A-Za-z\s])!="), r"\\ne "),  # 5!=120 is a factorial
)
_UNION = re.compile(r"(?<=[)\]])\s*(?:U|u|union|\\text\s*\{\s*U\s*\})\s*(?=[(\[])")
_OR = re.compile(r"(?<=[)\]])\s*(?:or|\\text\s*\{\s*or\s*\})\s*(?=[(\[])")


def write_plain_text_as_latex(text: str) -> str:
    r"""Returns a formula with the plain-text names, powers and relations in LaTeX.

    >>> write_plain_text_as_latex("2*sqrt(x) + pi"), write_plain_text_as_latex("pie")
    ('2\\cdot \\sqrt{x} + \\pi', 'pie')
    """
    text = _rewrite_calls(text)
    text = _ROOT.sub(lambda run: _CALLS[run[1]] % run[2], text)
    text = _NAME.sub(_write_name, text)
    text = _POWER.sub("^", text)
    text = _PRODUCT.sub(r"\\cdot ", text)
    text = _EXPONENT.sub(r"^{\1}", _brace_exponents(text))
    for pattern, relation in _RELATIONS:
        text = pattern.sub(relation, text)
    if r"\infty" in text:  # (1,2) or (2,1) are pairs
        text = _OR.sub(r" \\cup ", text)
    return _UNION.sub(r" \\cup ", text)


def _write_name(found: re.Match[str]) -> str:
    if found["kept"]:
        return found[0]
    return r"\infty" if found["infinity"] else f"\\{found[0]}"


def _rewrite_calls(text: str) -> str:
    """Returns the text with sqrt(..), exp(..) and similar calls in LaTeX."""
    for call in reversed(list(_CALL.finditer(text))):
        end = find_closing(text, call.end() - 1)
        if end is not None:
            inner = text[call.end() : end]
            text = text[: call.start()] + _CALLS[call[1]] % inner + text[end + 1 :]
    return text


def _brace_exponents(text: str) -> str:
    """Returns the text with x^{..} for x^(..)."""
    for power in reversed(list(_FRACTION_EXPONENT.finditer(text))):
        end = find_closing(text, power.end() - 1)
        if end is not None:
            inner = text[power.end() : end]
            text = f"{text[: power.start()]}^{{{inner}}}{text[end + 1 :]}"
    return text


def find_closing(text: str, opening: int) -> int | None:
    """Returns where the round bracket at `opening` closes, None if it does not."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return None
