r"""Normalizes notation: Unicode and shorthand become LaTeX.

Golds and answers both pass through `normalize_notation` before a verifier sees them. It
leaves anything it does not know unchanged.
"""

import re
import unicodedata

from rlvr_jax.verifiers.answers.cleanup import clean_text

_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi"
_SYMBOLS = {
    chr(0x3B1 + place): f"\\{name} " for place, name in enumerate(_GREEK.split())
} | {
    "\u03c0": r"\pi ",
    "\u03c1": r"\rho ",
    "\u03c3": r"\sigma ",
    "\u03c4": r"\tau ",
    "\u03c6": r"\phi ",
    "\u03c8": r"\psi ",
    "\u03c9": r"\omega ",
    "\u0394": r"\Delta ",
    "\u2044": "/",  # the fraction slash
    "\u2212": "-",
    "\u00d7": r"\times ",
    "\u00f7": r"\div ",
    "\u00b7": r"\cdot ",
    "\u22c5": r"\cdot ",
    "\u00b1": r"\pm ",
    "\u00b0": r"^\circ ",
    "\u221e": r"\infty ",
    "\u222a": r"\cup ",
    "\u2229": r"\cap ",
    "\u2205": r"\emptyset ",
    "\u2300": r"\emptyset ",
    "\u2208": r"\in ",
    "\u2264": r"\le ",
    "\u2265": r"\ge ",
    "\u2260": r"\ne ",
    "\u2248": r"\approx ",
}
_TABLE = str.maketrans(_SYMBOLS)
# Applied before NFKC, which would turn a half after 1 into 11/2 and x squared into x2.
_FRACTIONS = str.maketrans(
    {
        sign: "\\frac{{{}}}{{{}}}".format(
            *unicodedata.normalize("NFKC", sign).split("\u2044")
        )
        for sign in map(chr, (*range(0xBC, 0xBF), *range(0x2150, 0x215F)))
    }
)
# A number of m\u00b2 is an area; a variable m squared would be written in LaTeX.
_RAISED_UNIT = re.compile("(?<=\\d)\\s?(mm|cm|dm|m|km|in|ft|yd|mi)([\u00b2\u00b3])")
_CONSTANT = re.compile(r"(?<![A-Za-z])\\mathrm\s*\{\s*([ei])\s*\}")
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207f]+")
_LOWERED = re.compile("[\u2080-\u208e]+")
_ROOT = re.compile(
    r"([\u221a\u221b\u221c])\s*"
    r"(\d+(?:\.\d+)?|[A-Za-z]|\\[a-z]+|\([^()]*\)|\{[^{}]*\})"
)
_ROOTS = {"\u221a": r"\sqrt", "\u221b": r"\sqrt[3]", "\u221c": r"\sqrt[4]"}

_SCIENTIFIC = re.compile(
    r"(?<![\w.,^/\\}])(\d+(?:\.\d*)?|\.\d+)[eE]([-+]?\d{1,3})(?!\w|\.\d)", re.ASCII
)
_POINT_BEFORE_SLASH = re.compile(r"(?<![\d.,])(\d+)\.(?=/\d)", re.ASCII)  # -3./2
_MIXED = re.compile(r"(?<![\d.,/^])(\d+) +(\d+)/(\d+)(?![\d/.^])", re.ASCII)
_REPEATING = re.compile(
    r"(?<![\d.,])(\d{0,50})\.(\d{0,50})\\(?:overline|bar|dot)\s*"
    r"(?:\{(\d{1,50})\}|(\d))",
    re.ASCII,
)


def normalize_notation(text: str) -> str:
    r"""Returns the text in ASCII and LaTeX, with Unicode and shorthand replaced.

    Worked examples: "x\u00b2" x^{2}, "1\u00bd" and "1 1/2" 1\frac{1}{2}, "1.5e3"
    1.5\times 10^{3}, "0.\overline{3}" \frac{3}{9}, "5m\u00b2" 5\text{ m}^2, \mathrm{e}
    e, full-width digits ASCII digits. End marks and emphasis are dropped (`cleanup`).
    """
    text = clean_text(text)
    if not text.isascii():
        text = text.translate(_FRACTIONS)
        text = _RAISED_UNIT.sub(_write_unit, text)
        text = _RAISED.sub(lambda run: f"^{{{run[0]}}}", text)
        text = _LOWERED.sub(lambda run: f"_{{{run[0]}}}", text)
        text = unicodedata.normalize("NFKC", text).translate(_TABLE)
        text = _ROOT.sub(_write_root, text)
    text = _CONSTANT.sub(r"\1", text)
    text = _POINT_BEFORE_SLASH.sub(r"\1", text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = _SCIENTIFIC.sub(_write_scientific, text)
    return _REPEATING.sub(_write_repeating, text)


def _write_unit(found: re.Match[str]) -> str:
    power = 2 if found[2] == "\u00b2" else 3
    return rf"\text{{ {found[1]}}}^{power}"


def _write_root(found: re.Match[str]) -> str:
    inner = found[2].removeprefix("{").removesuffix("}")
    return f"{_ROOTS[found[1]]}{{{inner}}}"


def _write_scientific(found: re.Match[str]) -> str:
    return rf"{found[1]}\times 10^{{{int(found[2])}}}"


def _write_repeating(found: re.Match[str]) -> str:
    """Returns the fraction: all digits minus those before the period, over 99..900..0.

    0.1666..: (16 - 1) / 90.
    """
    before, period = found[1] + found[2], found[3] or found[4]
    above = int(before + period) - int(before or "0")
    return rf"\frac{{{above}}}{{{'9' * len(period)}{'0' * len(found[2])}}}"
