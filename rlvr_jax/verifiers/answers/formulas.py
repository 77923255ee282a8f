r"""Rewrites one formula so that the grammar reads it: style, fractions, plain text.

`tidy_formula` applies to the gold and to the answer alike, so that no rule can favor
one of them. It never evaluates anything.
"""

import re

from rlvr_jax.verifiers.answers.limits import MAX_CHARACTERS
from rlvr_jax.verifiers.answers.numerals import join_digit_groups
from rlvr_jax.verifiers.answers.plain_text import write_plain_text_as_latex
from rlvr_jax.verifiers.answers.statements import strip_delimiters

_GROUP = r"\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}"
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z]{2})")
_STYLE = re.compile(
    r"\\(?:(?:display|text|script|scriptscript)style|tiny|scriptsize|footnotesize|small"
    r"|normalsize|large|Large|LARGE|huge|Huge|bf|rm|it|sf|tt|bfseries|boldmath|limits"
    r"|nolimits|strut|mathstrut|null|allowbreak|nobreak|[bB]igg?[lrm]?)(?![A-Za-z])\s*"
    r"|\\[hv]space\s*\*?\s*\{[^{}]*\}|\\[hv]?phantom\s*\{[^{}]*\}"
    r"|\\(?:text)?color\s*(?:\[[^]]*\])?\s*\{[^{}]*\}"
)
_ROMAN = re.compile(r"\{\s*\\rm\s+([^{}]*)\}|\\rm(?![A-Za-z])\s*([A-Za-z]+)")
_WRAPPER = re.compile(
    r"\\(?:(?:math|text)(?:bf|it|sf|tt|normal)|textrm|boldsymbol|bm|pmb|emph|underline"
    rf"|ensuremath|fbox|mathop|mathord)\s*{_GROUP}"
)
_WORDS = re.compile(r"\s*(?:[A-Za-z]{2,}|[A-Za-z .,'-]*[A-Za-z] [A-Za-z .,'-]*)\s*")
_SPACING = re.compile(
    r"(?<!\\)\\[,;: /]|(?<![\\,])\\!|~|\\(?:q?quad|thinspace|medspace|thickspace"
    r"|enspace|enskip|negthinspace|hfill|hfil|nobreakspace|space)(?![A-Za-z])"
)
_DEGREE = re.compile(
    r"\\(?:text|mathrm)\s*\{\s*\^\s*\\circ\s*\}|"
    r"\^?\s*\{?\s*\\(?:degrees?|textdegree|deg|circ)(?![A-Za-z])\s*\}?(?!\s*[(\\])"
    r"|(?<=\d)\s*\^\s*(?:\{\s*o\s*\}|\\(?:text|mathrm)\s*\{\s*o\s*\}|o(?![A-Za-z]))"
)
_SCALE = re.compile(
    r"(?<=\d)\s*\^\\circ\s*(?:\\(?:text|mathrm)\s*\{\s*[CFK]\s*\}|[CF])\s*$"
)
_CHOOSE = re.compile(r"(?:^|\{)([^{}\\]*)\\(choose|over)(?![A-Za-z])([^{}\\]*)(?:\}|$)")
_COMMAND = re.compile(r"\\(?:[dtc]?frac|[dt]?binom|sqrt)(?![A-Za-z])")
_SHORT_ARGUMENT = re.compile(rf"[0-9A-Za-z]|\\[A-Za-z]+(?:\s*{_GROUP})?")
_EMPTY_SET = re.compile(r"\\(?:varnothing|O)(?![A-Za-z])")
_EMPTY = re.compile(
    r"(?:\\left)?\\\{\s*(?:\\right)?\\\}|[\u00d8\u00f8\u2300]|(?:\\text\s*\{\s*)?"
    r"(?:the )?"
    r"empty ?set\s*\}?",
    re.IGNORECASE,
)
# What renders as nothing: 45{}^\circ, \sqrt{}{3}, \left. x \right.
_EMPTY_GROUP = re.compile(r"\{\s*\}(?=\s*\^)|(?<=\\sqrt)\s*\{\s*\}(?=\s*\{)")
_NO_BRACKETS = re.compile(
    r"\\left\s*\.((?:(?!\\left|\\right).)*)\\right\s*(?:\.|$)", re.DOTALL
)
_GLUED = re.compile(r"(\\(?:leq?|geq?|neq?))(?=[a-fh-pr-z](?![a-z]))")  # \lex
_PLUS = re.compile(r"(^|(?<=[(\[,=]))\s*\+\s*(?=[\d.\\A-Za-z(])")


def tidy_formula(text: str) -> str:
    r"""Returns a formula without style and spacing, with braces, in LaTeX.

    >>> tidy_formula(r"\large \frac 1 2"), tidy_formula("4*x**13")
    ('\\frac{1}{2}', '4\\cdot x^{13}')
    """
    if len(text) > MAX_CHARACTERS:
        return text
    text = _tidy_style(join_digit_groups(text))
    if _EMPTY.fullmatch(text):
        return r"\emptyset"
    text = _CHOOSE.sub(_write_command, _EMPTY_SET.sub(r"\\emptyset", text))
    text = write_plain_text_as_latex(add_braces(text))
    return strip_delimiters(_PLUS.sub(r"\1", text))


def _tidy_style(text: str) -> str:
    if "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    text = _NO_BRACKETS.sub(r"\1", _EMPTY_GROUP.sub("", text))
    text = _GLUED.sub(r"\1 ", text)
    text = _ROMAN.sub(lambda run: rf"\text{{{run[1] or run[2]}}}", text)
    text = _STYLE.sub("", text)
    for _ in range(3):  # wrappers in wrappers
        text = _WRAPPER.sub(_unwrap, text)
    text = _SPACING.sub(" ", text)
    return _SCALE.sub(r"^\\circ", _DEGREE.sub(r"^\\circ", text)).strip()


def _unwrap(found: re.Match[str]) -> str:
    """Returns the contents of a style command; words stay a text."""
    is_text = _WORDS.fullmatch(found[1])
    return rf"\text{{{found[1]}}}" if is_text else f"{{{found[1]}}}"


def _write_command(found: re.Match[str]) -> str:
    name = r"\binom" if found[2] == "choose" else r"\frac"
    return f"{name}{{{found[1].strip()}}}{{{found[3].strip()}}}"


def add_braces(text: str) -> str:
    r"""Returns a text with braces around the arguments of \frac, \binom and \sqrt.

    Without braces an argument is one digit, one letter or one command, as in LaTeX. The
    last command is rewritten first, so that arguments have their braces already.
    """
    for command in reversed(list(_COMMAND.finditer(text))):
        is_root = command[0] == r"\sqrt"
        place = command.end()
        arguments: list[str] = []
        if is_root and text[place:].lstrip().startswith("["):
            continue
        while len(arguments) < (1 if is_root else 2):
            argument, place = _read_argument(text, place)
            if not argument:
                break
            arguments.append(argument)
        else:
            name = command[0].replace("cfrac", "frac")
            text = f"{text[: command.start()]}{name}{''.join(arguments)}{text[place:]}"
    return text


def _read_argument(text: str, place: int) -> tuple[str, int]:
    """Returns the argument at a place in braces, and its end; "" if there is none."""
    while place < len(text) and text[place].isspace():
        place += 1
    if text[place : place + 1] == "{":
        depth = 0
        for end in range(place, len(text)):
            if text[end] in "{}" and text[end - 1] != "\\":
                depth += 1 if text[end] == "{" else -1
            if depth == 0:
                return text[place : end + 1], end + 1
        return "", place
    short = _SHORT_ARGUMENT.match(text, place)
    return (f"{{{short[0]}}}", short.end()) if short else ("", place)
