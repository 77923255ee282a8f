r"""Reads the unit or currency of a number: "5 cm^2", "\$5", "5\text{ km/h}".

A missing unit does not make an answer wrong. A different unit does, if both units are
known here: 5 cm is not 5 m, and not 5 cm^2. Quantities are not converted.
"""

import re

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
_DEGREES = re.compile(r"\^\s*\{?\s*\\circ\s*\}?[\s.]*$")
_PART = re.compile(r"([a-z]+)\.?(?:\^?([1-9]))?")

Unit = tuple[tuple[str, int], ...]  # (name, power) above and below a "/"


def read_unit(text: str) -> Unit | None:
    """Returns the unit at the end of an expression, or its currency, else None."""
    if currency := _CURRENCY.search(text):
        return ((_CURRENCIES[currency[0]], 1),)
    if _DEGREES.search(text):
        return (("degree", 1),)
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
    """Returns whether both expressions end in known units, and these differ."""
    unit, other_unit = read_unit(text), read_unit(other)
    return None not in (unit, other_unit) and unit != other_unit


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
