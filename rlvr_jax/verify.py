r"""The command that grades answers: JSON lines in, the same lines with verdicts out.

    echo '{"kind": "math", "gold": "1/2", "answer": "\\boxed{0.5}"}' \
        | python -m rlvr_jax.verify

Every input line gets one output line, in order, as soon as it is graded. If a line
cannot be graded, its output line says why, and the command continues.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Sequence

from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.verifiers.lines import grade_lines

_USAGE = """\
usage: python -m rlvr_jax.verify [--workers=N] [--timeout_s=SECONDS] < IN > OUT

IN   one JSON object a line: {"kind": KIND, "gold": TEXT, "answer": TEXT}; a TEXT may
     be a number. An answer is correct if, by KIND,
       math          the final answer and the gold are equal as mathematics
       numeric       both are one number, with or without a unit, and equal
       exact         answer and gold are equal as text, except for surrounding space
       code          the answer is a program with which the gold, Python code, runs
                     without an error
       finite_field  the answer ends in "answer X" and X is the gold numeral

     An optional "format" says where math, numeric and exact look for the answer:
       any           the default: the last <answer>..</answer>, else the last
                     \\boxed{..}, else the text after the last "####" or "answer is",
                     else the last number or formula; kind exact takes the whole text
       boxed         only the last complete \\boxed{..}
       tagged        only the last complete <answer>..</answer>

     <confidence>..</confidence> is not part of an answer.
OUT  the same objects with "verdict" (correct, incorrect or unverified) and "reason"

flags:"""


_DEFAULT = VerifierConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyFlags(Flags):
    """The flags of this command."""

    workers: int = _DEFAULT.workers  # processes for math and numeric
    timeout_s: float = _DEFAULT.timeout_s  # seconds an item may take


def main(argv: Sequence[str]) -> int:
    """Returns 0 once the input has ended, 2 for a bad `argv`, 130 on Ctrl-C."""
    try:
        flags, extra = parse_flags(argv, VerifyFlags, usage=_USAGE, at_least=True)
        if extra:
            raise UsageError(f"unexpected argument {extra[0]!r}; the lines go to stdin")
        config = VerifierConfig(workers=flags.workers, timeout_s=flags.timeout_s)
    except (UsageError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        # Not sys.stdin: at exit, Python would wait for a thread that still reads it.
        source = open(0, "rb", closefd=False)  # noqa: SIM115
        for graded in grade_lines(source, config):
            print(json.dumps(graded), flush=True)
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130  # a shell's code for it; every graded line has been written
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
