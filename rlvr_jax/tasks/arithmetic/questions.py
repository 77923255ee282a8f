"""Arithmetic questions in plain English, in five levels.

| level | questions                                                          |
|-------|--------------------------------------------------------------------|
| 1     | sums and products of two one-digit numbers                         |
| 2     | stories of one step; a two-digit number times a one-digit number   |
| 3     | a two-digit number plus or minus a one-digit number                |
| 4     | sums and differences of two two-digit numbers                      |
| 5     | three one-digit numbers, added and subtracted                      |

Levels are ordered by how often SmolLM2-135M-Instruct fails: it solves about half of
level 1 and about one in twenty of levels 3 to 5 (docs/use/real_model.md).
"""

import hashlib
import random
from collections.abc import Callable
from typing import NamedTuple

_WORDINGS = {
    "+": ("What is {} + {}?", "{} plus {} equals what?", "Add {} and {}."),
    "-": ("What is {} - {}?", "{} minus {} equals what?", "What is {} less {}?"),
    "*": ("What is {} * {}?", "{} times {} equals what?", "Multiply {} by {}."),
}
_NAMES = ("Ann", "Ben", "Eve", "Leo", "Mia", "Tom", "Zoe")
_THINGS = ("apples", "books", "coins", "eggs", "pens", "stamps")
_STORIES = {
    "+": (
        "{name} has {a} {things} and gets {b} more. How many {things} does {name} "
        "have now?",
        "There are {a} red {things} and {b} blue {things}. How many {things} are "
        "there?",
    ),
    "-": (
        "{name} has {a} {things} and gives away {b}. How many {things} are left?",
        "There were {a} {things} and {name} took {b}. How many {things} are left?",
    ),
}
_HELD_OUT_SHARE = 4  # one in four sets of numbers is held out


class Question(NamedTuple):
    """A question, its answer, and the calculation that gives it."""

    text: str
    calculation: str
    answer: int
    numbers: tuple[int, ...]

    @property
    def is_held_out(self) -> bool:
        """Returns whether the question is on the held-out side of the split.

        Only the numbers decide, not their order, the wording or the operation. So if a
        policy trains on 7 + 5, then 5 + 7 and stories about 7 and 5 are not held out.
        """
        content = repr(sorted(self.numbers)).encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        return int.from_bytes(digest, "big") % _HELD_OUT_SHARE == 0


def draw_question(rng: random.Random, level: int) -> Question:
    """Returns a random question of a level. Raises KeyError on an unknown level."""
    return _DRAW[level](rng)


def _one_digit(rng: random.Random) -> Question:
    return _ask(rng, rng.choice("+*"), rng.randint(1, 9), rng.randint(1, 9))


def _story_or_product(rng: random.Random) -> Question:
    if rng.random() < 0.5:
        return _ask(rng, "*", rng.randint(11, 30), rng.randint(2, 9))
    op = rng.choice("+-")
    first, second = rng.randint(1, 9), rng.randint(1, 9)
    if op == "-" and first <= second:
        first, second = second + 1, first
    text = rng.choice(_STORIES[op]).format(
        a=first, b=second, name=rng.choice(_NAMES), things=rng.choice(_THINGS)
    )
    return Question(
        text, f"{first} {op} {second}", _apply(op, first, second), (first, second)
    )


def _two_and_one_digit(rng: random.Random) -> Question:
    return _ask(rng, rng.choice("+-"), rng.randint(11, 99), rng.randint(2, 9))


def _two_digits(rng: random.Random) -> Question:
    first, second = rng.randint(11, 99), rng.randint(11, 99)
    op = rng.choice("+-")
    if op == "-" and first < second:
        first, second = second, first
    return _ask(rng, op, first, second)


def _three_terms(rng: random.Random) -> Question:
    numbers = tuple(rng.randint(1, 9) for _ in range(3))
    second, third = rng.choice("+-"), rng.choice("+-")
    calculation = f"{numbers[0]} {second} {numbers[1]} {third} {numbers[2]}"
    answer = _apply(third, _apply(second, numbers[0], numbers[1]), numbers[2])
    wording = rng.choice(("What is {}?", "Calculate {}."))
    return Question(wording.format(calculation), calculation, answer, numbers)


_DRAW: dict[int, Callable[[random.Random], Question]] = {
    1: _one_digit,
    2: _story_or_product,
    3: _two_and_one_digit,
    4: _two_digits,
    5: _three_terms,
}
LEVELS = tuple(_DRAW)


def _ask(rng: random.Random, op: str, first: int, second: int) -> Question:
    text = rng.choice(_WORDINGS[op]).format(first, second)
    return Question(
        text, f"{first} {op} {second}", _apply(op, first, second), (first, second)
    )


def _apply(op: str, first: int, second: int) -> int:
    return {"+": first + second, "-": first - second, "*": first * second}[op]
