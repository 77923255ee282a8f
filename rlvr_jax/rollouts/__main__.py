"""The command `python -m rlvr_jax.rollouts show WORKDIR`: saved completions as text."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from job_jax.command import UsageError, parse_flags, run_command
from job_jax.schema import did_you_mean
from rlvr_jax.rollouts.show import count_verdicts, find_rollouts, format_row, read_rows
from rlvr_jax.run.fetch import local_run
from rlvr_jax.types import BANDS

_USAGE = """\
usage: python -m rlvr_jax.rollouts show WORKDIR [--wrong] [--band=hard] [--step=N] ...

Prints saved completions of a run: the prompt, the completion, the gold, the answer that
the verifier read, the verdict with its reason, and the reward. Without --step it shows
the last saved step. Characters that would move the cursor are shown as escapes.
"""
_VERDICTS = {"wrong": "incorrect", "correct": "correct", "unverified": "unverified"}


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 2 if there is nothing to show, with one line that says why."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    values = _flags()
    name, workdir = parse_flags(
        argv, values, usage=_USAGE, arguments=["show", "WORKDIR"]
    )
    if name != "show":
        raise UsageError(f"no command {name!r}{did_you_mean(name, ['show'])}")
    file, step = find_rollouts(local_run(workdir), stage=values.stage, step=values.step)
    rows = read_rows(file)
    ids = list(dict.fromkeys(row["id"] for row in rows))
    if values.problem and values.problem not in ids:
        raise UsageError(
            f"no problem {values.problem!r} in step {step} of stage "
            f"{values.stage!r}, which has {len(ids)}, such as {ids[0]!r}"
            f"{did_you_mean(values.problem, ids)}"
        )
    selected = _select(rows, values)
    shown = selected[: values.limit or None]
    lines = [f"{values.stage}, step {step}: {count_verdicts(rows)}"]
    for row in shown:
        lines += ["", format_row(row)]
    if len(shown) < len(rows):
        rest = "" if len(shown) == len(selected) else "; --limit=0 shows all of them"
        lines += ["", f"{len(shown)} of {len(selected)} that match{rest}"]
    _print_lines(lines)


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    told = {
        "wrong": "only incorrect completions",
        "correct": "only correct completions",
        "unverified": "only completions that could not be judged",
    }
    for name, text in told.items():
        flags.DEFINE_boolean(name, False, text, flag_values=values)
    flags.DEFINE_enum(
        "band", None, list(BANDS), "only problems in this band", flag_values=values
    )
    flags.DEFINE_string(
        "problem", None, "only the problem with this id", flag_values=values
    )
    flags.DEFINE_integer("step", None, "the step to show", flag_values=values)
    flags.DEFINE_string(
        "stage",
        "train",
        "train, difficulty, eval_before, eval_after or probe",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "limit", 10, "show at most this many; 0: all", lower_bound=0, flag_values=values
    )
    return values


def _select(rows: Sequence[dict[str, Any]], values: flags.FlagValues) -> list[dict]:
    """Returns the rows that match the flags; several verdict flags are alternatives."""
    verdicts = {status for flag, status in _VERDICTS.items() if values[flag].value}
    return [
        row
        for row in rows
        if (not verdicts or row["verdict"] in verdicts)
        and values.band in (None, row.get("band"))
        and values.problem in (None, row["id"])
    ]


def _print_lines(lines: Sequence[str]) -> None:
    """Prints lines in the terminal's encoding, and ignores a closed pipe."""
    encoding = sys.stdout.encoding or "utf-8"
    text = "\n".join(lines).encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
