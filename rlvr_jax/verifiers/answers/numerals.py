"""Reads the one number that a text states, exactly."""

import re
from decimal import Decimal
from fractions import Fraction

from rlvr_jax.verifiers.answers.calculations import FUNCTIONS, VALUE_CHANGING_WORDS

_MAX_DIGITS = 20_000  # longer than the part of a completion that is read

_PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)", re.ASCII)
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}|,\\!)(?=\d{3}(?!\d))")
_SPACED_GROUPS = re.compile(
    r"(?<![\w.,^])[1-9]\d{0,2}(?:(?: |~|\\[,;:! ]|\{ \})\d{3}){1,20}(?![\d{^])",
    re.ASCII,
)
_DECIMAL_COMMA = re.compile(r"([-+]?\d+),(\d+)", re.ASCII)
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+", re.ASCII)
_DECIMAL_POINT = re.compile(r"[-+]?(?:\d+\.\d+|\.\d+)", re.ASCII)
_BASE = re.compile(r"\(?\d[0-9A-Fa-f]*\)?\s*_\s*\{?\s*(\d{1,2})\s*\}?", re.ASCII)
_PERCENT = re.compile(
    r"%|\s*(?:\\text\s*\{\s*per ?cent\s*\}|\bper ?cent\b)", re.IGNORECASE
)
_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s*(?:\\[()\[\]]|\$\$)+\s*(?=\d)")  # \(2\)7
_NUMBER = re.compile(
    r"(?:(?<![\w)\]}])[-+\u2212])?"  # a sign, not the minus of "10-5"
    r"(?:\\?\$[-+\u2212]?)?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:/\d+)?(?:\\?%)?",
    re.ASCII,
)
_FRACTION = re.compile(
    r"(?<![\d.,])(\d{0,9}) *\\[dt]?frac\s*"
    r"(?:\{\s*(\d{1,999})\s*\}|(\d))\s*(?:\{\s*(\d{1,999})\s*\}|(\d))(?![\d^]|\.\d)",
    re.ASCII,
)
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = re.compile(
    r"(?<=\d)\s*(?P<text>\\(?:text|textrm|mathrm|mbox)\s*\{\s*)?"
    rf"(?P<word>{'|'.join(SCALES)})\b(?P<end>\s*\}})?",
    re.IGNORECASE,
)
_POWER_OF_TEN = re.compile(
    r"(?<![\w.,^/)}])(?:(\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})"
    r"\s*(?:\\times|\\cdot|[*x])\s*)?"
    r"10\s*\^\s*(?:\{\s*([-+]?\d{1,3})\s*\}|(-?\d{1,3}))(?![\d^]|\.\d)",
    re.ASCII,
)
# Allowed around a number: a unit, a currency, "x =" before it; but no mathematics. A
# hyphen may join words (well-known), follow the number (5-inch) or be a dash.
_UNIT = re.compile(
    r"\s*(?:[A-Za-z]\s*=)?"
    r"(?:[^\W\d_]|[\s.,:;()\u00b0\ufffc'$]|\^\\circ|\\text\{|\}|\\ "
    r"|(?<=[A-Za-z])-(?=[A-Za-z])|(?<=\ufffc)-(?=[A-Za-z]{2})|(?<=[A-Za-z]{2} )-(?= ))*"
)
# Not units: a function or letters before the number, an unknown or "k" after it, "5 and
# a half", "2 pi".
_OPERAND = re.compile(r"(?<![A-Za-z])[B-HJ-Zb-z]\s+$")  # x - 5 is a difference
_NO_UNIT = re.compile(
    rf"\b(?i:{'|'.join(sorted(VALUE_CHANGING_WORDS))})\b|\bpi\b|\ban? quarter\b"
    rf"|\b(?i:{'|'.join(sorted(FUNCTIONS))}|than|twice|double|triple)\b[\s({{]*\ufffc"
    r"|[A-Za-z]\(?\ufffc|\ufffc(?:[abefijnoqruvxyz]|\s?[kKMB])\b"
)


def parse_decimal(text: str) -> Fraction | None:
    """Returns the value of a decimal numeral, None if `text` is anything else."""
    numeral = _THOUSANDS.sub("", text.replace("\\$", "").replace("$", ""))
    numeral = numeral.replace("\u2212", "-").strip()
    if len(numeral) > _MAX_DIGITS or not _PLAIN.fullmatch(numeral):
        return None
    return Fraction(Decimal(numeral))  # int() refuses more than 4,300 digits


def join_digit_groups(text: str) -> str:
    r"""Returns a text without the spaces inside numbers: "1 000", "12\,345"."""
    return _SPACED_GROUPS.sub(lambda run: re.sub(r"\D", "", run[0]), text)


def read_decimal_comma(text: str, *, beside: str, min_digits: int = 1) -> str:
    """Returns "1,5" as "1.5" if `beside` is a number with a decimal point.

    Other texts do not change: a list ("1, 5"), groups of thousands ("1,500"), and
    numbers with fewer than `min_digits` digits after the comma.
    """
    comma = _DECIMAL_COMMA.fullmatch(text)
    if comma is None or len(comma[2]) < min_digits or _GROUPED.fullmatch(text):
        return text
    return f"{comma[1]}.{comma[2]}" if _DECIMAL_POINT.fullmatch(beside) else text


def have_different_bases(text: str, other: str) -> bool:
    """Returns whether both are numerals with stated, different bases, such as 52_8.

    42_{10} has the value of 52_8, but does not answer a question for it in base 8.
    """
    base, other_base = (_BASE.fullmatch(side.strip()) for side in (text, other))
    return bool(base and other_base and int(base[1]) != int(other_base[1]))


def has_percent_sign(text: str) -> bool:
    """Returns whether a text writes "%" or "percent"."""
    return _PERCENT.search(text) is not None


def write_scale_words(text: str) -> str:
    r"""Returns a text with powers of ten instead of scale words after a number.

    >>> print(write_scale_words(r"5 million, 2\text{ thousand cm}"))
    5\times 10^{6} , 2\times 10^{3} \text{  cm}
    """

    def write_power(found: re.Match[str]) -> str:
        power = rf"\times 10^{{{SCALES[found['word'].lower()]}}} "
        is_whole = found["text"] and found["end"]
        return power if is_whole else power + (found["text"] or found["end"] or "")

    return _SCALE.sub(write_power, text)


def parse_single_number(text: str) -> Fraction | None:
    r"""Returns the value of the only number in `text`, None for none or several.

    Worked examples: "$1,234.50", "18 dollars", "3/4", "\frac34", "75\%" (3/4),
    "1\frac{1}{2}" (3/2), "1.5\times 10^{3}", "5 million".
    """
    if len(text) > 2 * _MAX_DIGITS:
        return None
    text = write_scale_words(join_digit_groups(text.replace("{,}", ",")))
    text = _PERCENT.sub("%", text)
    text = _BETWEEN_DIGITS.sub(" ", text)
    text = re.sub(r"\\left|\\right|\\[][,;!()]|\$\$|(?<=\d)\s+(?=\\?%)", "", text)
    text = re.sub(r"(?<![^\s=$])([-+])\s+(?=[$.\d])", r"\1", text)
    text = _POWER_OF_TEN.sub(_evaluate_power, text)
    text = _FRACTION.sub(_evaluate_fraction, text)
    numbers = list(_NUMBER.finditer(text))
    if len(numbers) != 1:
        return None
    [number] = numbers
    # The object replacement character marks the number's place in the rest of the text.
    rest = f"{text[: number.start()]}\ufffc{text[number.end() :]}"
    if not _UNIT.fullmatch(rest) or _NO_UNIT.search(rest):
        return None
    if number[0][0] in "+-" and _OPERAND.search(text[: number.start()]):
        return None
    whole = number[0].removesuffix("%").removesuffix("\\")
    above, _, below = whole.partition("/")
    value, divisor = parse_decimal(above), parse_decimal(below or "1")
    if value is None or not divisor:
        return None
    return value / divisor / (100 if number[0].endswith("%") else 1)


def _evaluate_power(found: re.Match[str]) -> str:
    value = Fraction(found[1] or "1") * Fraction(10) ** int(found[2] or found[3])
    return str(value)


def _evaluate_fraction(found: re.Match[str]) -> str:
    whole, above, below = (
        int(found[1] or "0"),
        found[2] or found[3],
        found[4] or found[5],
    )
    return f"{whole * int(below) + int(above)}/{below}"
