r"""The command that judges answers: JSON lines in, the same lines with verdicts out.

    echo '{"kind": "math", "gold": "1/2", "answer": "\\boxed{0.5}"}' \
        | python -m rlvr_jax.verify

Every input line gets one output line, in order and as soon as it is judged. A line that
cannot be judged is told why, and does not stop the command.
"""

import contextlib
import difflib
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, get_args

from absl import flags

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config import VerifierConfig
from rlvr_jax.types import AnswerForm, Problem, Verdict
from rlvr_jax.verifiers import POOLED, judge_here
from rlvr_jax.verifiers.math import Item, MathVerifier

_KINDS = (*POOLED, "exact", "finite_field")
_FORMS = get_args(AnswerForm)
_FIELDS = ("kind", "gold", "answer", "form")
_BOM = b"\xef\xbb\xbf"  # some editors begin a file of UTF-8 with it
_CHUNK = 256  # lines, where as many are waiting; enough to keep the workers busy

_USAGE = """\
usage: python -m rlvr_jax.verify [--workers=N] [--timeout_s=SECONDS] < IN > OUT

IN   one JSON object a line: {"kind": KIND, "gold": TEXT, "answer": TEXT}, where a TEXT
     may be a number, with KIND
       math          the final answer and the gold are equal as mathematics
       numeric       both are one number, with or without a unit, and equal
       exact         answer and gold are equal as text, white space around them aside
       finite_field  the answer ends in "answer X" and X is the gold numeral
     and, if wanted, "form": where kinds but finite_field look for the answer
       any           the last <answer>..</answer>, else the last \\boxed{..}, else what
                     follows the last "####" or "answer is", else the last
                     number or formula, whole; kind exact takes the whole text
                     (this is the default)
       boxed         the last complete \\boxed{..} alone
       tagged        the last complete <answer>..</answer> alone
OUT  the same objects with "verdict" (right, wrong or unjudged) and "reason"

flags:"""

Record = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Returns 0 once the input has ended, 2 for a bad `argv`, 130 on Ctrl-C."""
    values = _flags()
    try:
        extra = values(["", *argv])[1:]
        if extra:
            raise ConfigError(
                f"unexpected argument {extra[0]!r}; the lines go to stdin"
            )
        config = VerifierConfig(workers=values.workers, timeout_s=values.timeout_s)
    except (flags.Error, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if values.help:
        print(_USAGE)
        for name in values:
            print(f"  {f'--{name}':<12} {values[name].help} ({values[name].default})")
        return 0
    try:
        # A file of our own: at exit Python waits for nobody who still reads it.
        _serve(open(0, "rb", closefd=False), config)  # noqa: SIM115
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130  # as a shell says it; what was judged has been written
    return 0


def _flags() -> flags.FlagValues:
    default = VerifierConfig()
    values = flags.FlagValues()
    flags.DEFINE_integer(
        "workers", default.workers, "processes for math, numeric", flag_values=values
    )
    flags.DEFINE_float(
        "timeout_s", default.timeout_s, "limit per item in them", flag_values=values
    )
    flags.DEFINE_boolean("help", False, "show this and exit", flag_values=values)
    return values


def _serve(source: BinaryIO, config: VerifierConfig) -> None:
    """Answers every line of `source` on stdout."""
    with MathVerifier(config.workers, config.timeout_s) as verifier:
        for lines in _chunks(source):
            items = [_read(line, number) for number, line in lines]
            pooled = [known for _, known in items if isinstance(known, Item)]
            with contextlib.closing(verifier.judge_each(pooled)) as verdicts:
                for record, known in items:
                    verdict = next(verdicts) if isinstance(known, Item) else known
                    judged = {"verdict": verdict.status, "reason": verdict.reason}
                    print(json.dumps(record | judged), flush=True)


def _chunks(source: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """Yields (number, line) of the lines that have arrived, at least one at a time.

    A thread reads on without bound meanwhile, so that a caller who writes all lines
    before it reads the first verdict is never left waiting.
    """
    arrived: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()

    def read() -> None:
        for numbered in enumerate(source, start=1):
            arrived.put(numbered)
        arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while item := arrived.get():
        chunk = [item]
        while len(chunk) < _CHUNK and not arrived.empty() and (item := arrived.get()):
            chunk.append(item)
        yield chunk
        if item is None:
            return


def _read(line: bytes, number: int) -> tuple[Record, Verdict | Item]:
    """Returns a line's object and its verdict, or the item that workers must judge."""
    record: Record = {}
    try:
        record = _object(line.removeprefix(_BOM) if number == 1 else line)
        kind = _text(record, "kind")
        gold, answer = _text(record, "gold"), _text(record, "answer")
        if kind not in _KINDS:
            raise ConfigError(f"unknown kind {kind!r}{did_you_mean(kind, _KINDS)}")
        form: Any = _text(record, "form") if "form" in record else _FORMS[0]
        if form not in _FORMS:
            raise ConfigError(f"unknown form {form!r}{did_you_mean(form, _FORMS)}")
    except ConfigError as error:
        reason = f"line {number}: {error}"
        return record, Verdict(status="unjudged", reason=reason)
    if kind in POOLED:
        return record, Item(gold, answer, form, kind)
    problem = Problem(
        id="", prompt="", gold=gold, kind=kind, source="stdin", answer_form=form
    )
    return record, judge_here(problem, answer)


def _object(line: bytes) -> Record:
    """Returns the JSON object of a line. Raises ConfigError where there is none."""
    try:
        record = json.loads(line.decode(), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"not JSON at column {error.colno} ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ConfigError("no JSON object")
    return record


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is none of its numbers")


def _text(record: Record, field: str) -> str:
    """Returns the text of a field, a number's too. Raises ConfigError without one."""
    if field not in record:
        unknown = [name for name in record if name not in _FIELDS]
        nearest = difflib.get_close_matches(field, unknown, n=1, cutoff=0.75)
        known = f"; the kinds are {', '.join(_KINDS)}" if field == "kind" else ""
        meant = f"; did you mean {nearest[0]!r}?" if nearest else known
        raise ConfigError(f"no field {field!r}{meant}")
    value = record[field]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{field!r} is neither text nor a number")
    return str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
