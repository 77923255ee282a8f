r"""One worker process: reads (gold, answer) items, writes verdicts.

It is run as a script by `verifiers.math`, not imported by it, and imports nothing of
this package: a worker must not load JAX. Text is parsed by a grammar (math-verify's
LaTeX reader) and never evaluated as code.

The rule by which an answer is read, also for a gold that carries one of the marks:
  1. what stands in the last complete <answer>...</answer>, and there in its last
     complete box if it has one;
  2. else what stands in the last complete \boxed{...};
  3. else what follows the last "####" or "answer is", up to the end of the line or
     sentence or the first word after a number ("18 dollars"); where words come first,
     the first number among them;
  4. else the last number.
So of several statements the last complete one counts, whatever the others say. The form
"tagged" stops after 1, the form "boxed" knows 2 alone.
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
from fractions import Fraction

# Address space of a worker. math-verify with sympy takes 60 MB; a power such as
# 10^(10^10) asks for gigabytes and must fail here, not push the trainer out of memory.
_MEMORY_BYTES = 1 << 30

# What a degenerate policy writes costs the grammar or sympy seconds to minutes and then
# a new worker, so the worst is not parsed at all: "1+1+1+" to the end, brackets within
# brackets (the grammar's time grows exponentially), towers of powers, an exponent of
# six digits. The golds of GSM8K, MATH-500 and DeepScaleR's sample have at most 145
# characters and 2 levels of brackets.
_MAX_EXPRESSION = 500
_MAX_DEPTH = 5
_TOWER = re.compile(r"\^\s*\{[^{}]*\^\s*\{[^{}]*\^|\^\s*\{?\s*\d{6}", re.ASCII)

_MARK = re.compile(r"####|answer is", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?;](?=\s|$)")
_WORD = re.compile(r"\\text\b|(?<![\\A-Za-z])[A-Za-z]{2,}")
_NUMBER = re.compile(
    r"(?:(?<![\w)\]}])[-\u2212])?"  # a sign, not the minus of "10-5"
    r"(?:\\?\$[-\u2212]?)?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:/\d+)?(?:\\?%)?",
    re.ASCII,
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{?(\d+)\}?\s*\{?(\d+)\}?", re.ASCII)
# What may stand around a number: a unit, a currency, "x =" before it; no mathematics.
_UNIT = re.compile(r"\s*(?:[A-Za-z]\s*=)?(?:[\w\s.,:;()\u00b0'$-]|\\text\{|\}|\\ )*")
_PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)", re.ASCII)
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}|,\\!)(?=\d{3}(?!\d))")


def final_answer(text: str, form: str = "any") -> str:
    """Returns the answer that the rule above finds in `text`, "" for none."""
    stated = stated_answer(text, form)
    if stated is not None or form != "any":
        return stated or ""
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else ""


def stated_answer(text: str, form: str = "any") -> str | None:
    """Returns what `text` marks as its answer, None where it marks nothing."""
    if form != "boxed" and (tagged := _last_tagged(text)) is not None:
        inner = _last_boxed(tagged)
        return (tagged if inner is None else inner).strip()
    if form == "tagged":
        return None
    boxed = _last_boxed(text)
    if boxed is not None:
        return boxed.strip()
    if form == "boxed":
        return None
    marks = list(_MARK.finditer(text))
    if not marks:
        return None
    rest = text[marks[-1].end() :].lstrip(" \t:=*")
    span = _SENTENCE_END.split(rest, maxsplit=1)[0].rstrip(" \t.,:*")
    word, number = _WORD.search(span), _NUMBER.search(span)
    if word is None or number is None:
        return span
    before = span[: word.start()].strip()
    return before if number.start() < word.start() else number[0]


def _last_tagged(text: str) -> str | None:
    """Returns the contents of the last <answer>...</answer>, None without one."""
    opening, closing = "<answer>", "</answer>"
    start = text.rfind(opening, 0, max(0, text.rfind(closing)))
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.index(closing, start)]


def _last_boxed(text: str) -> str | None:
    r"""Returns the contents of the last \boxed{...} whose braces close."""
    groups: list[int] = []  # where each open box begins, -1 for other open braces
    first, end = -1, -1
    for token in re.finditer(r"\\boxed\s*\{|\\.|[{}]", text, re.DOTALL):
        if token[0] == "{":
            groups.append(-1)
        elif token[0].startswith("\\boxed"):
            groups.append(token.end())
        elif token[0] == "}" and groups and (start := groups.pop()) > first:
            first, end = start, token.start()
    return text[first:end] if first >= 0 else None


def _plain_number(text: str) -> Fraction | None:
    """Returns the value of a decimal numeral, None where `text` is anything else."""
    numeral = _THOUSANDS.sub("", text.replace("\\$", "").replace("$", ""))
    numeral = numeral.replace("\u2212", "-").strip()
    # int() refuses more than 4,300 digits; nobody's answer is that long.
    if len(numeral) > 1000 or not _PLAIN.fullmatch(numeral):
        return None
    return Fraction(numeral)


def _depth(text: str) -> int:
    """Returns how many brackets of any kind are open at once, at most."""
    steps = ((c in "([{") - (c in ")]}") for c in text)
    return max(itertools.accumulate(steps), default=0)


@functools.lru_cache(maxsize=1024)  # a group of G samples shares its gold
def _parsed(text: str) -> tuple:
    """Returns math-verify's readings of an expression, () where it has none."""
    from math_verify import LatexExtractionConfig, parse  # noqa: PLC0415

    if len(text) > _MAX_EXPRESSION or _depth(text) > _MAX_DEPTH or _TOWER.search(text):
        return ()
    bare = re.sub(r"(?<!\\)\$|\\[()\[\]]", "", text).replace("\n", " ").strip(" .,")
    return tuple(
        parse(
            f"${bare}$",
            [LatexExtractionConfig(boxed_match_priority=-1)],
            fallback_mode="no_fallback",
            extraction_mode="first_match",
            parsing_timeout=None,  # its signals; the limit is kept from outside
        )
    )


def _single_number(text: str) -> Fraction | None:
    r"""Returns the value of the one number in `text`, None for none and for several.

    Worked examples: "$1,234.50", "18 dollars", "3/4", "\frac34", "75\%" (3/4).
    """
    text = _FRACTION.sub(r"\1/\2", text[:_MAX_EXPRESSION])
    numbers = _NUMBER.findall(text)
    if len(numbers) != 1 or not _UNIT.fullmatch(text.replace(numbers[0], " ", 1)):
        return None
    whole = numbers[0].removesuffix("%").removesuffix("\\")
    above, _, below = whole.partition("/")
    value, divisor = _plain_number(above), _plain_number(below or "1")
    if value is None or not divisor:
        return None
    return value / divisor / (100 if numbers[0].endswith("%") else 1)


def judge(
    gold: str, answer: str, form: str = "any", kind: str = "math"
) -> tuple[str, str, str | None]:
    """Returns status, reason and the answer found."""
    marked = stated_answer(gold)
    gold = gold.strip() if marked is None else marked
    if not gold:
        return "unjudged", "gold is empty", None
    given = final_answer(answer, form)
    if kind == "numeric":
        return _judge_number(gold, given)
    return _judge_mathematics(gold, given)


def _judge_number(gold: str, given: str) -> tuple[str, str, str | None]:
    gold_number = _single_number(gold)
    if gold_number is None:
        return "unjudged", "gold is no single number", None
    if not given:
        return "wrong", "no final answer", None
    number = _single_number(given)
    if number is None:
        return "wrong", "final answer is no single number", given
    return ("right" if number == gold_number else "wrong"), "", given


def _judge_mathematics(gold: str, given: str) -> tuple[str, str, str | None]:
    from math_verify import verify  # noqa: PLC0415

    gold_number = _plain_number(gold)
    if gold_number is None and not _parsed(gold):
        return "unjudged", "gold does not parse", None
    if not given:
        return "wrong", "no final answer", None
    if given == gold:
        return "right", "", given
    number = _plain_number(given)
    if number is not None and gold_number is not None:
        if number == gold_number:
            return "right", "", given
        if number.denominator == gold_number.denominator == 1:
            return "wrong", "", given
    if not _parsed(given):
        return "wrong", "final answer does not parse", given
    equal = verify(
        list(_parsed(gold)),
        list(_parsed(given)),
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
    main(float(sys.argv[1]))
