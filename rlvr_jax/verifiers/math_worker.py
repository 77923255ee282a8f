"""One worker process: reads (gold, answer) items, writes verdicts.

It is run as a script by `verifiers.math`, not imported by it, and of this package it
imports `rlvr_jax.verifiers.answers` alone: a worker must not load JAX. Text is parsed
by a grammar (math-verify's LaTeX reader) and never evaluated as code.
"""

import contextlib
import functools
import itertools
import json
import logging
import os
import re
import resource
import signal
import socket
import sys
from typing import Any

from rlvr_jax.verifiers.answers import (
    extract_answer,
    extract_marked_answer,
    normalize_notation,
    parse_decimal,
    parse_single_number,
    strip_delimiters,
)

# Address space of a worker. math-verify with sympy takes 60 MB; a power such as
# 10^(10^10) asks for gigabytes and must fail here, not push the trainer out of memory.
_MEMORY_BYTES = 1 << 30

# What a degenerate policy writes costs the grammar or sympy seconds to minutes and then
# a new worker, so the worst is not parsed at all: "1+1+1+" to the end, deep brackets,
# towers of powers, an exponent of six digits. An answer of that kind is wrong and not
# `unverified`, which would earn its group's mean. The golds of GSM8K, MATH-500 and
# DeepScaleR's sample have at most 145 characters and 2 levels of brackets.
_MAX_EXPRESSION = 500
_MAX_DEPTH = 16
_TOWER = re.compile(r"\^\s*\{[^{}]*\^\s*\{[^{}]*\^|\^\s*\{?\s*\d{6}", re.ASCII)
_EULER = re.compile(r"e\s*\^.*(?<![A-Za-z])i(?![A-Za-z])", re.DOTALL)


def _bracket_depth(text: str) -> int:
    """Returns how many brackets of any kind are open at once, at most."""
    steps = ((c in "([{") - (c in ")]}") for c in text)
    return max(itertools.accumulate(steps), default=0)


def _parse_failure(text: str) -> str:
    """Returns why there are no readings of an expression, "" where there are some."""
    if len(text) > _MAX_EXPRESSION:
        return f"is not parsed: over {_MAX_EXPRESSION} characters"
    if _bracket_depth(text) > _MAX_DEPTH:
        return f"is not parsed: brackets over {_MAX_DEPTH} deep"
    if _TOWER.search(text):
        return "is not parsed: a tower of powers, or an exponent of six digits"
    return "" if _parse_latex(text) else "does not parse"


@functools.lru_cache(maxsize=1024)  # a group of G samples shares its gold
def _parse_latex(text: str) -> tuple:
    """Returns math-verify's readings of a bare expression, () where it has none."""
    from math_verify import LatexExtractionConfig, parse  # noqa: PLC0415
    from sympy import exp, nan, zoo  # noqa: PLC0415

    # The grammar would add numbers that stand side by side: "1 2 3" is 6.
    if re.search(r"\d\s+\d", text):
        return ()
    readings = parse(
        f"${text}$",
        [LatexExtractionConfig(boxed_match_priority=-1)],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,  # its signals; the limit is kept from outside
    )
    if _EULER.search(text):  # i is a variable to the grammar
        readings = [reading.replace(exp, _complex_exp) for reading in readings]
    return tuple(r for r in readings if not r.has(nan, zoo))


def _complex_exp(power: Any) -> Any:
    """Returns e^power with the imaginary unit for what is named i."""
    from sympy import I, exp  # noqa: PLC0415

    return exp(power.subs({x: I for x in power.free_symbols if x.name == "i"}))


def grade(
    gold: str, answer: str, answer_format: str = "any", verifier: str = "math"
) -> tuple[str, str, str | None]:
    """Returns status, reason and the answer found."""
    gold, answer = normalize_notation(gold), normalize_notation(answer)
    marked = extract_marked_answer(gold)
    gold = gold.strip() if marked is None else marked
    if not gold:
        return "unverified", "gold is empty", None
    if verifier == "numeric":
        return _grade_number(gold, extract_answer(answer, answer_format))
    if answer_format == "any" and strip_delimiters(answer) == strip_delimiters(gold):
        return "correct", "", gold
    return _grade_mathematics(gold, extract_answer(answer, answer_format))


def _grade_number(gold: str, answer: str) -> tuple[str, str, str | None]:
    gold_number = parse_single_number(gold)
    if gold_number is None:
        return "unverified", "gold is no single number", None
    if not answer:
        return "incorrect", "no final answer", None
    number = parse_single_number(answer)
    if number is None:
        return "incorrect", "final answer is no single number", answer
    return ("correct" if number == gold_number else "incorrect"), "", answer


def _grade_mathematics(gold: str, answer: str) -> tuple[str, str, str | None]:
    from math_verify import verify  # noqa: PLC0415

    bare_gold, bare_given = strip_delimiters(gold), strip_delimiters(answer)
    if answer and bare_given == bare_gold:
        return "correct", "", answer
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
    equal = verify(
        list(_parse_latex(bare_gold)),
        list(_parse_latex(bare_given)),
        timeout_seconds=None,
        raise_on_error=True,
    )
    return ("correct" if equal else "incorrect"), "", answer


def _grade_safely(item: list[str]) -> tuple[str, str, str | None]:
    """Returns `grade`'s verdict, or `unverified` where the mathematics raised."""
    try:
        return grade(*item)
    except Exception as error:
        return "unverified", f"{type(error).__name__} while judging", None


def main(timeout_s: float) -> None:
    """Serves the socket on file descriptor 0 until the other end closes it."""
    with contextlib.suppress(ValueError, OSError):  # macOS does not grant this limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    channel = socket.socket(fileno=0)
    # Two files: one for both directions would drop what it has read ahead on a write.
    requests, replies = channel.makefile("r"), channel.makefile("w")
    grade(r"\frac{1}{2}", "0.5")  # loads the parser and its tables
    replies.write("ready\n")
    replies.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for line in requests:
        item = json.loads(line)
        # The parent keeps the limit; this ends a worker whose parent was killed.
        signal.setitimer(signal.ITIMER_REAL, 2 * timeout_s + 1)
        verdict = _grade_safely(item)
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(verdict) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(float(sys.argv[-1]))
