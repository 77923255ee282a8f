"""One worker process: reads (gold, answer) items, writes verdicts.

It is run as a script by `verifiers.math`, not imported by it, and of this package it
imports `rlvr_jax.answers` alone: a worker must not load JAX. Text is parsed by a
grammar (math-verify's LaTeX reader) and never evaluated as code.
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

from rlvr_jax.answers import (
    bare,
    final_answer,
    plain,
    plain_number,
    single_number,
    stated_answer,
)

# Address space of a worker. math-verify with sympy takes 60 MB; a power such as
# 10^(10^10) asks for gigabytes and must fail here, not push the trainer out of memory.
_MEMORY_BYTES = 1 << 30

# What a degenerate policy writes costs the grammar or sympy seconds to minutes and then
# a new worker, so the worst is not parsed at all: "1+1+1+" to the end, deep brackets,
# towers of powers, an exponent of six digits. An answer of that kind is wrong and not
# `unjudged`, which would earn its group's mean. The golds of GSM8K, MATH-500 and
# DeepScaleR's sample have at most 145 characters and 2 levels of brackets.
_MAX_EXPRESSION = 500
_MAX_DEPTH = 16
_TOWER = re.compile(r"\^\s*\{[^{}]*\^\s*\{[^{}]*\^|\^\s*\{?\s*\d{6}", re.ASCII)
_EULER = re.compile(r"e\s*\^.*(?<![A-Za-z])i(?![A-Za-z])", re.DOTALL)


def _depth(text: str) -> int:
    """Returns how many brackets of any kind are open at once, at most."""
    steps = ((c in "([{") - (c in ")]}") for c in text)
    return max(itertools.accumulate(steps), default=0)


def _unread(text: str) -> str:
    """Returns why there are no readings of an expression, "" where there are some."""
    if len(text) > _MAX_EXPRESSION:
        return f"is not parsed: over {_MAX_EXPRESSION} characters"
    if _depth(text) > _MAX_DEPTH:
        return f"is not parsed: brackets over {_MAX_DEPTH} deep"
    if _TOWER.search(text):
        return "is not parsed: a tower of powers, or an exponent of six digits"
    return "" if _parsed(text) else "does not parse"


@functools.lru_cache(maxsize=1024)  # a group of G samples shares its gold
def _parsed(text: str) -> tuple:
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


def judge(
    gold: str, answer: str, form: str = "any", kind: str = "math"
) -> tuple[str, str, str | None]:
    """Returns status, reason and the answer found."""
    gold, answer = plain(gold), plain(answer)
    marked = stated_answer(gold)
    gold = gold.strip() if marked is None else marked
    if not gold:
        return "unjudged", "gold is empty", None
    if kind == "numeric":
        return _judge_number(gold, final_answer(answer, form))
    if form == "any" and bare(answer) == bare(gold):
        return "right", "", gold
    return _judge_mathematics(gold, final_answer(answer, form))


def _judge_number(gold: str, given: str) -> tuple[str, str, str | None]:
    gold_number = single_number(gold)
    if gold_number is None:
        return "unjudged", "gold is no single number", None
    if not given:
        return "wrong", "no final answer", None
    number = single_number(given)
    if number is None:
        return "wrong", "final answer is no single number", given
    return ("right" if number == gold_number else "wrong"), "", given


def _judge_mathematics(gold: str, given: str) -> tuple[str, str, str | None]:
    from math_verify import verify  # noqa: PLC0415

    bare_gold, bare_given = bare(gold), bare(given)
    if given and bare_given == bare_gold:
        return "right", "", given
    gold_number, number = plain_number(bare_gold), plain_number(bare_given)
    if gold_number is None and (unread := _unread(bare_gold)):
        return "unjudged", f"gold {unread}", None
    if not given:
        return "wrong", "no final answer", None
    if number is not None and gold_number is not None:
        if number == gold_number:
            return "right", "", given
        if number.denominator == gold_number.denominator == 1:
            return "wrong", "", given
    if unread := _unread(bare_given):
        return "wrong", f"final answer {unread}", given
    equal = verify(
        list(_parsed(bare_gold)),
        list(_parsed(bare_given)),
        timeout_seconds=None,
        raise_on_error=True,
    )
    return ("right" if equal else "wrong"), "", given


def _guarded(item: list[str]) -> tuple[str, str, str | None]:
    """Returns `judge`'s verdict, or `unjudged` where the mathematics raised."""
    try:
        return judge(*item)
    except Exception as error:
        return "unjudged", f"{type(error).__name__} while judging", None


def main(timeout_s: float) -> None:
    """Serves the socket on file descriptor 0 until the other end closes it."""
    with contextlib.suppress(ValueError, OSError):  # macOS does not grant this limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    channel = socket.socket(fileno=0)
    # Two files: one for both directions would drop what it has read ahead on a write.
    requests, replies = channel.makefile("r"), channel.makefile("w")
    judge(r"\frac{1}{2}", "0.5")  # loads the parser and its tables
    replies.write("ready\n")
    replies.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for line in requests:
        item = json.loads(line)
        # The parent keeps the limit; this ends a worker whose parent was killed.
        signal.setitimer(signal.ITIMER_REAL, 2 * timeout_s + 1)
        verdict = _guarded(item)
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(verdict) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(float(sys.argv[-1]))
