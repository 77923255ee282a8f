"""Answers to grade as JSON lines, which `python -m rlvr_jax.verify` reads and writes.

A line can only name one of our verifiers, because input data must not choose code to
run.
"""

import contextlib
import difflib
import json
import queue
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, cast, get_args

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config import VerifierConfig
from rlvr_jax.types import AnswerFormat, Problem, Verdict
from rlvr_jax.verifiers.base import VERIFIERS, get_verifier
from rlvr_jax.verifiers.built_in.math import Math
from rlvr_jax.verifiers.confidence import strip_confidence
from rlvr_jax.verifiers.math_pool import Item, MathPool

# A gold is not enough: a judge needs a config, and reasoning_gym needs the problem.
_NEEDS_MORE = ("judge", "reasoning_gym")
_KINDS = tuple(name for name in VERIFIERS.names if name not in _NEEDS_MORE)
_ANSWER_FORMATS = get_args(AnswerFormat)
_FIELDS = ("kind", "gold", "answer", "format")
_RECIPES_NAME = "answer_format"  # of "format", in task.record
_UTF8_BOM = b"\xef\xbb\xbf"  # some editors begin a UTF-8 file with it
_MAX_CHUNK_LINES = 256  # enough waiting lines to keep the workers busy

Record = dict[str, Any]


def grade_lines(source: BinaryIO, config: VerifierConfig) -> Iterator[Record]:
    """Yields each line's object with its verdict and reason, in order."""
    with MathPool(config.workers, config.timeout_s) as pool:
        for lines in _iter_chunks(source):
            parsed = [_parse_line(line, number) for number, line in lines]
            items = [task for _, task in parsed if isinstance(task, Item)]
            with contextlib.closing(pool.grade_each(items)) as verdicts:
                for record, task in parsed:
                    verdict = next(verdicts) if isinstance(task, Item) else task
                    yield record | {"verdict": verdict.status, "reason": verdict.reason}


def _iter_chunks(source: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """Yields chunks of (number, line) that have arrived, at least one line per chunk.

    A thread keeps reading without a bound meanwhile. So a caller that writes all lines
    before it reads the first verdict never deadlocks.
    """
    arrived: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()

    def read() -> None:
        for numbered in enumerate(source, start=1):
            arrived.put(numbered)
        arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while item := arrived.get():
        chunk = [item]
        while (
            len(chunk) < _MAX_CHUNK_LINES
            and not arrived.empty()
            and (item := arrived.get())
        ):
            chunk.append(item)
        yield chunk
        if item is None:
            return


def _parse_line(line: bytes, number: int) -> tuple[Record, Verdict | Item]:
    """Returns a line's object, and either its verdict or an item for the workers."""
    record: Record = {}
    try:
        record = _parse_object(line.removeprefix(_UTF8_BOM) if number == 1 else line)
        kind = _read_text(record, "kind")
        gold = _read_text(record, "gold")
        answer = strip_confidence(_read_text(record, "answer"))
        if kind not in _KINDS:
            raise ConfigError(f"unknown kind {kind!r}{did_you_mean(kind, _KINDS)}")
        form: Any = (
            _read_text(record, "format") if "format" in record else _ANSWER_FORMATS[0]
        )
        if _RECIPES_NAME in record and "format" not in record:
            raise ConfigError(f"no field {_RECIPES_NAME!r}; did you mean 'format'?")
        if form not in _ANSWER_FORMATS:
            raise ConfigError(
                f"unknown format {form!r}{did_you_mean(form, _ANSWER_FORMATS)}"
            )
    except ConfigError as error:
        reason = f"line {number}: {error}"
        return record, Verdict(status="unverified", reason=reason)
    verifier = get_verifier(kind)
    if isinstance(verifier, Math):  # its worker processes have a time limit
        return record, Item(gold, answer, form, kind)
    problem = Problem(
        id="", prompt="", gold=gold, verifier=kind, source="stdin", answer_format=form
    )
    return record, cast(Verdict, verifier.grade(problem, answer))


def _parse_object(line: bytes) -> Record:
    """Returns the JSON object in a line. Raises ConfigError for anything else."""
    try:
        record = json.loads(line.decode().rstrip(), parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"not JSON at column {error.colno} ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ConfigError("not a JSON object")
    return record


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _read_text(record: Record, field: str) -> str:
    """Returns a field's text or number as text. Raises ConfigError without one."""
    if field not in record:
        unknown = [name for name in record if name not in _FIELDS]
        nearest = difflib.get_close_matches(field, unknown, n=1, cutoff=0.75)
        names = ", ".join(_KINDS)
        hint = f"; the kinds are {names}" if field == "kind" else ""
        if nearest:
            hint = f"; rename {nearest[0]!r}"
        raise ConfigError(f"no field {field!r}{hint}")
    value = record[field]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        several = isinstance(value, list)
        fix = "; write a line for each" if several else ""
        raise ConfigError(f"{field!r} is neither text nor a number{fix}")
    return str(value)
