"""Numbers that a text implies without writing them in digits."""

import re
from fractions import Fraction

_UNITS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS = (
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
)
_PARTS = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")

_WORDS: dict[str, tuple[int | str, ...]] = {
    **{word: (value,) for value, word in enumerate(_UNITS)},
    **{word: (10 * value,) for value, word in enumerate(_TENS, start=2)},
    **{name: (n, f"1/{n}") for n, name in enumerate(_PARTS, start=3)},
    **dict.fromkeys(("half", "halves", "halved"), (2, "1/2")),
    **dict.fromkeys(("twice", "double", "pair", "couple", "both", "twin"), (2,)),
    **dict.fromkeys(("thrice", "triple"), (3,)),
    **dict.fromkeys(("once", "single", "another"), (1,)),
    "quarter": (4, "1/4", 25),
    "hundred": (100,),
    "thousand": (1000,),
    "million": (1_000_000,),
    "dozen": (12,),
    "score": (20,),
    # How many of a unit make another one.
    **dict.fromkeys(("second", "minute"), (60, 3600)),
    "hour": (60, 24, 3600),
    "day": (24, 7, 30, 365),
    "week": (7, 52, 4),
    "weekday": (5,),
    "weekend": (2,),
    "month": (12, 30, 4),
    "year": (12, 52, 365),
    "decade": (10,),
    "century": (100,),
    **dict.fromkeys(("inch", "inche", "foot", "feet"), (12,)),
    "yard": (3,),
    **dict.fromkeys(("pound", "ounce"), (16,)),
    **dict.fromkeys(("percent", "cent", "dollar", "centimeter", "cm"), (100,)),
    **dict.fromkeys(
        ("meter", "kilometer", "km", "kilogram", "kg", "gram"), (100, 1000)
    ),
    **dict.fromkeys(("liter", "ml", "milliliter", "ton"), (1000,)),
    "penny": (1, "1/100"),
    "nickel": (5, "1/20"),
    "dime": (10, "1/10"),
}
_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_COMPOUND = re.compile(rf"({'|'.join(_TENS)})[- ]({'|'.join(_UNITS[1:10])})\b")


def implied_numbers(text: str) -> frozenset[Fraction]:
    """Returns the numbers that words of `text` may mean, and 1, the whole.

    For example, "twice a week" may mean 2, 7, 52 and 4. The list is generous on
    purpose: each number is one more way to read a chain, and a rewrite is verified only
    if it holds under all of them.
    """
    text = text.lower()
    found: set[Fraction] = {Fraction(1)}
    for word in _WORD.findall(text):
        for form in (word, word.removesuffix("s"), word.removesuffix("d")):
            found.update(Fraction(value) for value in _WORDS.get(form, ()))
    for ten, unit in _COMPOUND.findall(text):
        found.add(Fraction(10 * (_TENS.index(ten) + 2) + _UNITS.index(unit)))
    if "%" in text or "$" in text:
        found.add(Fraction(100))
    return frozenset(found)
