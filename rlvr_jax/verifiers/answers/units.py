r"""Reads the unit or currency of a number: "5 cm^2", "\$5", "5\text{ km/h}".

A missing unit does not make an answer wrong. A different unit does, if both units are
known here: 5 cm is not 5 m, and not 5 cm^2. Quantities are not converted.
"""

import re

from rlvr_jax.verifiers.answers.statements import JOINING_WORDS

_NAMES = {
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "dm": "decimeter decimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "mg": "milligram",
    "g": "gram",
    "kg": "kilogram",
    "lb": "pound lbs",  # also the currency: the word is the same
    "oz": "ounce",
    "ml": "milliliter millilitre",
    "l": "liter litre",
    "gal": "gallon",
    "ms": "millisecond",
    "s": "sec second",
    "min": "minute",
    "h": "hr hour",
    "day": "",
    "week": "",
    "month": "",
    "year": "yr",
    "dollar": "",
    "cent": "",
    "euro": "",
    "yen": "",
    "degree": "deg",
    "radian": "rad",
}
_UNITS = {
    alias + plural: unit
    for unit, aliases in _NAMES.items()
    for alias in (unit, *aliases.split())
    for plural in ("", "s")
}
_CURRENCIES = {"\\$": "dollar", "\u20ac": "euro", "\u00a3": "lb", "\u00a5": "yen"}
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_COMPOUNDS = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h"}

_CURRENCY = re.compile("|".join(map(re.escape, _CURRENCIES)))
_TRAILING = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mbox)\s*\{(?P<text>[^{}]{0,40})\}"
    r"|(?<=[\d)}\s])(?P<word>[A-Za-z]{2,20}(?:[ /][A-Za-z]{1,20}){0,4}))"
    r"\s*(?:\^\s*\{?\s*(?P<power>[1-9])\s*\}?)?[\s.]*$"
)
_DEGREES = re.compile(
    r"(?:\^\s*\{?\s*\\circ\s*\}?|\\degrees?|\\textdegree)"
    r"\s*(?:\\(?:text|mathrm)\s*\{\s*)?([CFK]?)\s*\}?[\s.]*$"
)
_SCALES = {"": "degree", "C": "celsius", "F": "fahrenheit", "K": "kelvin"}
# 20/month, $20 per month, 5\text{ m}/\text{s}, 5 \frac{\text{m}}{\text{s}}
_TEXT_UNIT = r"\\(?:text|mathrm|mbox|textrm)\s*\{\s*([A-Za-z ]{1,20})\s*\}"
_TEXT_RATIO = re.compile(
    rf"{_TEXT_UNIT}\s*/\s*{_TEXT_UNIT}|\\[dt]?frac\s*\{{\s*{_TEXT_UNIT}\s*\}}"
    rf"\s*\{{\s*{_TEXT_UNIT}\s*\}}"
)
_PER = re.compile(
    r"(?<=[\d}%])\s*(?:\\text\s*\{)?\s*(?:/\s*|(per)\s+)(?:\\text\s*\{)?\s*"
    r"([A-Za-z]{1,20})\s*\}?[\s.]*$"
)
_PART = re.compile(r"([a-z]+)\.?(?:\^?([1-9]))?")

# 20 dollars/month, 30 students per class
_WORDS = re.compile(
    r"(?<=[\d}])\s+([A-Za-z]{3,20}(?:(?:\s|\s?/\s?)[A-Za-z]{1,20}){0,5})[\s.]*$"
)
_NO_UNITS = {word.lower() for word in JOINING_WORDS} | {
    "mod",
    "if",
    "for",
    "when",
    "is",
}
_UNSTATED = ("", 1)  # the unit above the "/" of "20/month"

Unit = tuple[tuple[str, int], ...]  # (name, power) above and below a "/"


def read_unit(text: str) -> Unit | None:
    """Returns the unit at the end of an expression, or its currency, else None."""
    rate = _read_rate(text)
    below = [(rate, 1)] if rate else []
    if currency := _CURRENCY.search(text):
        return ((_CURRENCIES[currency[0]], 1), *below)
    if below:
        return (_UNSTATED, *below)
    if degrees := _DEGREES.search(text):
        return ((_SCALES[degrees[1]], 1),)
    found = _TRAILING.search(text)
    if found is None:
        return None
    words = (found["text"] or found["word"] or "").lower().strip()
    words = re.sub(r"\s*\bper\b\s*", "/", _COMPOUNDS.get(words, words))
    parts = [_read_part(part) for part in words.split("/")]
    unit = tuple(part for part in parts if part)
    if len(unit) < len(parts):
        return None
    name, power = unit[-1]
    return (*unit[:-1], (name, power * int(found["power"] or 1)))


def have_different_units(text: str, other: str) -> bool:
    """Returns whether both expressions end in known units, and these differ.

    The money of "$20/month" may leave out the month, and "20/month" the dollars.
    """
    unit, other_unit = (read_unit(join_units(side)) for side in (text, other))
    if unit is None or other_unit is None:
        return False
    numerators = {unit[0], other_unit[0]} - {_UNSTATED}
    is_money = numerators <= {(name, 1) for name in _CURRENCIES.values()}
    if is_money and 1 in (len(unit), len(other_unit)):
        return len(numerators) > 1
    return len(numerators) > 1 or unit[1:] != other_unit[1:]


def join_units(text: str) -> str:
    r"""Returns a text with \text{m}/\text{s} and the fraction of both as \text{m/s}."""
    return _TEXT_RATIO.sub(
        lambda run: (
            rf"\text{{{(run[1] or run[3]).strip()}/{(run[2] or run[4]).strip()}}}"
        ),
        text,
    )


def drop_rate(text: str) -> str:
    r"""Returns a number without "/month", "per month" or "dollars/month" after it.

    Words that change the number ("5 million", "5 and a half") stay.
    """
    words = _WORDS.search(text)
    if words and not set(re.findall("[a-z]+", words[1].lower())) & _NO_UNITS:
        return text[: words.start()]
    return _PER.sub("", text).strip() if _read_rate(text) else text


def _read_rate(text: str) -> str:
    """Returns the month of "20/month" or "20 per month", "" without one.

    After a slash, up to three letters that are no known unit are variables: 5/xy.
    """
    found = _PER.search(text)
    if found is None:
        return ""
    word = found[2].lower()
    if found[1] or len(word) > 3 or (word in _UNITS and len(word) > 1):
        return _UNITS.get(word, word)
    return ""


def drop_currency(text: str) -> str:
    r"""Returns a text without currency signs, except `\$`, which the grammar drops."""
    return re.sub("[\u20ac\u00a3\u00a5]", "", text).strip()


def _read_part(words: str) -> tuple[str, int] | None:
    """Returns a unit's name and power: "square feet", "cm^2", "meters squared"."""
    power, names = 1, []
    for word in words.split():
        if word.rstrip(".") in _POWERS:
            power *= _POWERS[word.rstrip(".")]
        else:
            names.append(word)
    found = _PART.fullmatch(names[0]) if len(names) == 1 else None
    if found is None or found[1] not in _UNITS:
        return None
    return _UNITS[found[1]], power * int(found[2] or 1)
