"""One worker process: reads (gold, answer) items, writes verdicts.

`verifiers.math_pool` runs it as a script. From this package it only imports
`rlvr_jax.verifiers.answers`, because a worker must not load JAX. Text is parsed with a
grammar (math-verify's LaTeX reader) and never evaluated as code.
"""

import contextlib
import functools
import json
import logging
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rlvr_jax.verifiers.answers.formulas import tidy_formula
from rlvr_jax.verifiers.answers.identities import (
    agree_where_real,
    is_false_equation,
    read_value,
)
from rlvr_jax.verifiers.answers.inequalities import write_sets_alike
from rlvr_jax.verifiers.answers.limits import MAX_CHARACTERS, describe_cost
from rlvr_jax.verifiers.answers.mismatches import describe_mismatch
from rlvr_jax.verifiers.answers.notation import normalize_notation
from rlvr_jax.verifiers.answers.numerals import (
    has_percent_sign,
    join_digit_groups,
    parse_decimal,
    parse_single_number,
    read_decimal_comma,
    write_scale_words,
)
from rlvr_jax.verifiers.answers.solutions import write_solutions_alike
from rlvr_jax.verifiers.answers.statements import (
    extract_answer,
    extract_marked_answer,
    read_whole_statement,
    strip_delimiters,
)
from rlvr_jax.verifiers.answers.units import (
    drop_currency,
    drop_rate,
    have_different_units,
    join_units,
)

# Address space of a worker. math-verify with sympy takes 60 MB. A power such as
# 10^(10^10) needs gigabytes and must fail here, not push the trainer out of memory.
_MEMORY_BYTES = 1 << 30

_PERCENT = re.compile(r"([^,;]*?)\s*\\?%")
_CLOCK = re.compile(r"\d{1,2}:0\d", re.ASCII)  # 6:00; 6:30 may be a ratio
_MAX_RELATIVE = 1e-4  # difference between equal numbers
_EULER = re.compile(r"e\s*\^.*(?<![A-Za-z])i(?![A-Za-z])", re.DOTALL)


# Symbols that the grammar does not read as symbols: E_1 (e is a number), \gamma (also a
# number), and indices that are commands.
_INDEX = r"_\s*(?:\{\s*(\w+)\s*\}|(\w))"
_INDEXED_E = re.compile(rf"(?<![A-Za-z\\])[eE]{_INDEX}", re.ASCII)
_GAMMA = re.compile(rf"\\gamma(?![A-Za-z])(?:{_INDEX})?", re.ASCII)
_LONE_LETTER = re.compile(r"(?<=[-+=])\s+(?=[A-Za-z](?![A-Za-z]))")  # no unit: x^2 + c
_THOUSANDS = re.compile(r"(?<=\d),\\!(?=\d{3}(?!\d))", re.ASCII)
_BARE_PI = re.compile(r"\\[dt]?frac\s*\\pi\s*(\d)", re.ASCII)
_BARE_GAMMA = re.compile(r"\^\s*\\gamma(?![A-Za-z_])")
_NAMED_INDEX = re.compile(
    r"_\s*(?:\{\s*\\(?:(odot|oplus|max|min)|(?:text|mathrm)\s*\{\s*([A-Za-z]+)\s*\})\s*\}"
    r"|\\(odot|oplus|max|min)(?![A-Za-z]))"
)


def _parse_failure(text: str) -> str:
    """Returns why an expression has no readings, "" if it has some.

    An answer that costs too much to parse is incorrect. An unverified one would earn
    its group's mean, and a policy would learn to write such answers.
    """
    if cost := describe_cost(text):
        return f"is not parsed: {cost}"
    return "" if _parse_latex(text) else "does not parse"


@functools.lru_cache(maxsize=1024)  # a group of G samples shares its gold
def _parse_latex(text: str) -> tuple:
    """Returns math-verify's readings of a bare expression, () without any."""
    from math_verify import LatexExtractionConfig, parse  # noqa: PLC0415
    from sympy import exp, nan, zoo  # noqa: PLC0415

    # The grammar would add adjacent numbers: "1 2 3" would be 6.
    if re.search(r"(?<!_)\d\s+\d", text):  # but \log_2 6 is fine
        return ()
    text = _LONE_LETTER.sub("", text)
    text = _BARE_PI.sub(r"\\frac{\\pi}{\1}", _THOUSANDS.sub("", text))
    text = _NAMED_INDEX.sub(r"_{\1\2\3}", text)
    text = _INDEXED_E.sub(r"\\epsilon_{E\1\2}", text)
    text = _GAMMA.sub(r"\\kappa_{gamma\1\2}", _BARE_GAMMA.sub(r"^{\\gamma}", text))
    percent = _PERCENT.fullmatch(text)
    readings = parse(
        f"${percent[1]}$%" if percent else f"${text}$",
        [LatexExtractionConfig(boxed_match_priority=-1)],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,  # it uses signals; the limit is kept from outside
    )
    if _EULER.search(text):  # the grammar reads i as a variable
        readings = [reading.replace(exp, _complex_exp) for reading in readings]
    return tuple(r for r in readings if not r.has(nan, zoo))


def _complex_exp(power: Any) -> Any:
    """Returns e^power, with symbols named i as the imaginary unit."""
    from sympy import I, exp  # noqa: PLC0415

    return exp(power.subs({x: I for x in power.free_symbols if x.name == "i"}))


def _differ(gold: object, answer: object) -> bool:
    """Returns whether two readings certainly differ.

    Equations with one equal side, y = 2x and y = 3x, are compared by the other side.
    This is needed because `verify` calls two equations equal if it can solve neither:
    25 + 2 = 27 and 25 + 2 = 28.
    """
    from sympy import Eq, Ne  # noqa: PLC0415

    for kind in (Eq, Ne):
        if isinstance(gold, kind) and isinstance(answer, kind):
            left, right = gold.args
            for side, other in (answer.args, answer.args[::-1]):
                if side == left:
                    return _differ_at_a_point(right, other)
    return _differ_at_a_point(gold, answer)


def _differ_at_a_point(gold: Any, answer: Any) -> bool:
    """Returns whether two expressions have different values at one point.

    This takes a millisecond. `verify` would simplify the difference, which takes
    seconds for a power of a sum. Returns False if either is not a formula of plain
    operations. Numbers also differ if their relative difference exceeds 1e-4, because
    `verify` rounds to six places, where every small number is 0.
    """
    from sympy import Float  # noqa: PLC0415
    from sympy.core.evalf import PrecisionExhausted  # noqa: PLC0415

    if not _are_plain(gold, answer):
        return False
    symbols = gold.free_symbols | answer.free_symbols
    names = sorted({x.name for x in symbols})
    # Between 0.2 and 0.9, where powers stay small; the golden ratio spreads them.
    point = {x: Float(0.2 + 0.7 * (0.618 * names.index(x.name) % 1)) for x in symbols}
    try:
        one, other = (
            side.evalf(20, subs=point, strict=True) for side in (gold, answer)
        )
    except PrecisionExhausted:
        return False
    distance, size, other_size = (abs(x).evalf(15) for x in (one - other, one, other))
    if not distance.is_finite:
        return False
    is_far = not names and distance > _MAX_RELATIVE * max(size, other_size)
    return bool(is_far or distance > 1e-9 * size + 1e-5)


def _are_plain(gold: object, answer: object) -> bool:
    """Returns whether both are formulas of plain operations, and neither is a word."""
    from sympy import Expr, Symbol, preorder_traversal  # noqa: PLC0415

    return all(
        isinstance(side, Expr)
        and not isinstance(side, Symbol)  # a symbol may be a word
        and all(map(_is_plain, preorder_traversal(side)))
        for side in (gold, answer)
    )


def _is_plain(node: object) -> bool:
    """Returns whether part of an expression has one value once its symbols have."""
    from sympy import Add, Function, I, Mul, Number, NumberSymbol, Pow, Symbol  # noqa: PLC0415  # noqa: PLC0415, I001
    from sympy.core.function import AppliedUndef  # noqa: PLC0415

    kinds = (Add, Mul, Pow, Number, NumberSymbol, type(I), Symbol, Function)
    return isinstance(node, kinds) and not isinstance(node, AppliedUndef)


def read_answer(completion: str, answer_format: str) -> str:
    """Returns the answer that a completion states, normalized; "" for none."""
    return extract_answer(normalize_notation(completion), answer_format)


def grade(
    gold: str, answer: str, answer_format: str = "any", verifier: str = "math"
) -> tuple[str, str, str | None]:
    """Returns the status, the reason and the answer that was read."""
    stated = read_answer(answer, answer_format)
    gold, answer = normalize_notation(gold), normalize_notation(answer)
    marked = extract_marked_answer(gold)
    gold = gold.strip() if marked is None else marked
    if not gold:
        return "unverified", "gold is empty", None
    if verifier == "numeric":
        return _grade_number(gold, stated)
    # A text is correct as a whole, too: the completion, all after its mark, or what a
    # tag contains.
    whole = [answer, read_whole_statement(answer)] if answer_format == "any" else []
    if "</answer>" in answer:
        whole.append(extract_marked_answer(answer, answer_format) or "")
    bare_gold = strip_delimiters(gold)
    if any(bare_gold == strip_delimiters(text) for text in whole if text):
        return "correct", "", gold
    return _grade_mathematics(gold, stated)


def _grade_number(gold: str, answer: str) -> tuple[str, str, str | None]:
    gold_number = _parse_number(gold)
    if gold_number is None:
        return "unverified", "gold is not a single number", None
    if not answer:
        return "incorrect", "no final answer", None
    number = _parse_number(answer)
    if number is None:
        return "incorrect", "final answer is not a single number", answer
    if have_different_units(gold, answer):
        return "incorrect", "another unit than the gold's", answer
    is_equal = number == gold_number
    # 60% is also 60, as in `math`; but 0.5% is not 0.5, which may be a share.
    if has_percent_sign(answer) and not has_percent_sign(gold):
        is_equal |= gold_number == 100 * number and abs(gold_number) >= 1
    elif has_percent_sign(gold) and not has_percent_sign(answer):
        is_equal |= number == 100 * gold_number and abs(number) >= 1
    return ("correct" if is_equal else "incorrect"), "", answer


def _parse_number(text: str) -> Fraction | None:
    """Returns the value of a text with one number, with or without style and a rate."""
    text = drop_currency(text)
    number = parse_single_number(text)
    if number is not None:
        return number
    return parse_single_number(tidy_formula(drop_rate(strip_delimiters(text))))


def _grade_mathematics(gold: str, answer: str) -> tuple[str, str, str | None]:
    bare_gold, bare_given = strip_delimiters(gold), strip_delimiters(answer)
    if answer and bare_given == bare_gold:
        return "correct", "", answer
    if _CLOCK.fullmatch(bare_gold):
        return "incorrect", "" if answer else "no final answer", answer or None
    is_short = max(len(bare_gold), len(bare_given)) <= MAX_CHARACTERS
    if is_short and (mismatch := describe_mismatch(bare_gold, bare_given)):
        return "incorrect", mismatch, answer
    bare_gold, bare_given = _write_alike(bare_gold, bare_given)
    gold_number, number = parse_decimal(bare_gold), parse_decimal(bare_given)
    if gold_number is None and (unread := _parse_failure(bare_gold)):
        return "unverified", f"gold {unread}", None
    if not answer:
        return "incorrect", "no final answer", None
    if number is not None and gold_number is not None:
        if number == gold_number:
            return "correct", "", answer
        if number.denominator == gold_number.denominator == 1:
            return "incorrect", "", answer
    if unread := _parse_failure(bare_given):
        return "incorrect", f"final answer {unread}", answer
    if "=" not in bare_gold and is_false_equation(bare_given, _parse_latex):
        return "incorrect", "final answer is a false equation", answer
    is_equal = _are_equal(_parse_latex(bare_gold), _parse_latex(bare_given))
    return ("correct" if is_equal else "incorrect"), "", answer


def _are_equal(golds: Sequence[object], givens: Sequence[object]) -> bool:
    """Returns whether a reading of the gold equals a reading of the answer."""
    from math_verify import verify  # noqa: PLC0415

    if all(_differ(g, a) for g in golds for a in givens):
        return False
    if verify(list(golds), list(givens), timeout_seconds=None, raise_on_error=True):
        return True
    return any(
        _are_plain(g, a) and agree_where_real(g, a) for g in golds for a in givens
    )


def _write_alike(gold: str, answer: str) -> tuple[str, str]:
    """Returns both in the notation that the grammar reads, numbers and sets alike."""
    gold, answer = (
        tidy_formula(drop_rate(join_units(write_scale_words(drop_currency(side)))))
        if len(side) <= MAX_CHARACTERS
        else side  # too long for a formula, but perhaps a number
        for side in (gold, answer)
    )
    gold, answer = _write_numbers_alike(gold, answer)
    if max(len(gold), len(answer)) > MAX_CHARACTERS:
        return gold, answer
    gold, answer = write_solutions_alike(gold, answer)
    return write_sets_alike(gold, answer, _read_end)


def _read_end(text: str) -> float | None:
    """Returns the value of an interval's end, None if it has none or costs too much."""
    return None if describe_cost(text) else read_value(text, _parse_latex)[0]


def _write_numbers_alike(gold: str, answer: str) -> tuple[str, str]:
    """Returns both without currencies, spaces in numbers and decimal commas.

    If the answer is 1.2, a gold "1,2" stays a list, but a gold "1,25" is a number.
    """
    gold, answer = (join_digit_groups(drop_currency(side)) for side in (gold, answer))
    return (
        read_decimal_comma(gold, beside=answer, min_digits=2),
        read_decimal_comma(answer, beside=gold),
    )


def _grade_safely(item: list[str]) -> tuple[str, str, str | None]:
    """Returns `grade`'s verdict, or `incorrect` if it raised.

    If it also raises for the gold alone, no answer can be graded: `unverified`.
    """
    try:
        return grade(*item)
    except Exception as error:
        gold, _, *how = item
        status = "unverified"
        with contextlib.suppress(Exception):
            status, *_ = grade(gold, "", *how)
        return status, f"{type(error).__name__} while judging", None


def main(timeout_s: float) -> None:
    """Serves the socket on file descriptor 0 until the other end closes it."""
    with contextlib.suppress(ValueError, OSError):  # macOS does not grant this limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    channel = socket.socket(fileno=0)
    # Two files, because one for both directions would drop its read buffer on a write.
    requests, replies = channel.makefile("r"), channel.makefile("w")
    grade(r"\frac{1}{2}", "0.5")  # loads the parser and its tables
    replies.write("ready\n")
    replies.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for line in requests:
        item = json.loads(line)
        # The parent enforces the limit; this ends a worker whose parent was killed.
        signal.setitimer(signal.ITIMER_REAL, 2 * timeout_s + 1)
        verdict = _grade_safely(item)
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(verdict) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(float(sys.argv[-1]))
