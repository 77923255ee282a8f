"""Hostile answers: no policy should write them, but some will."""

import random
from collections.abc import Callable

_DIGITS = "\u0660\u0661\u0662\u0663\u06f4\u0967\uff15\U0001d7d8\u00b2\u2460\u216b"
_MACROS: tuple[str, ...] = (
    r"\frac",
    r"\sqrt",
    r"\sum",
    r"\int",
    r"\binom",
    r"\left",
    r"\right",
)
_MACROS += (r"\begin{matrix}", r"\end{matrix}", r"\lim", r"\log", r"\infty", r"\text")
_PIECES = (*"{}()[]^_&%$\\+-*/=<>|!,.;:", "1", "x", "9999", *_MACROS, r"\boxed{")


def _nested(rng: random.Random) -> str:
    depth = rng.randrange(1, 400)
    left, right = rng.choice(("{}", "()", "[]", (r"\left(", r"\right)")))
    return left * depth + "5" + right * rng.choice((depth, depth - 1, depth + 1))


def _power(rng: random.Random) -> str:
    tower = rng.randrange(2, 7)
    base = str(rng.randrange(2, 10 ** rng.randrange(1, 9)))
    return "^{".join([base] * tower) + "}" * (tower - 1) + rng.choice(("", "!", "!!"))


def _fractions(rng: random.Random) -> str:
    depth = rng.randrange(1, 60)
    return r"\frac{1}{1+" * depth + "1" + "}" * rng.choice((depth, depth - 2))


def _soup(rng: random.Random) -> str:
    return "".join(rng.choices(_PIECES, k=rng.randrange(1, 120)))


def _long(rng: random.Random) -> str:
    return rng.choice(("1", "1+", "{", "a", "\\", "1,", "- ", "\n", "\u0661")) * 2**20


def _control(rng: random.Random) -> str:
    characters = [chr(rng.randrange(32)) for _ in range(rng.randrange(1, 50))]
    return "".join(characters) + rng.choice(("5", "\x7f\u202e5", "\ud800", "\ufeff5"))


def _unicode_digits(rng: random.Random) -> str:
    return "".join(rng.choices(_DIGITS, k=rng.randrange(1, 30)))


def _code(rng: random.Random) -> str:
    call = rng.choice(("__import__('os').abort()", "exit()", "'a'*10**10", "open('/')"))
    return rng.choice((call, rf"\text{{{call}}}", f"{{{{{call}}}}}", f"5; {call}"))


def _digits(rng: random.Random) -> str:
    number = "9" * rng.randrange(1, 20_000)
    return rng.choice((number, f"1e{number}", f"{number}/{number}", f"0.{number}"))


KINDS: tuple[Callable[[random.Random], str], ...] = (
    *(_nested, _power, _fractions, _soup, _control, _unicode_digits, _code, _digits),
)
_FRAMES = (r"\boxed{%s}", "#### %s", "<answer>%s</answer>", "%s", r"the answer is $%s$")


def hostile_answers(count: int, *, seed: int) -> list[str]:
    """Returns `count` answers, determined by the seed; one in 500 has a megabyte."""
    rng = random.Random(seed)
    answers = []
    for index in range(count):
        make = _long if index % 500 == 0 else rng.choice(KINDS)
        answers.append(rng.choice(_FRAMES).replace("%s", make(rng)))
    return answers
