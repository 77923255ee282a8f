"""The command `python -m rlvr_jax.rollouts show WORKDIR`: saved completions as text."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from job_jax.command import run_command
from job_jax.flags import Flags, UsageError, one_of, parse_flags
from job_jax.schema import NonNegativeInt, did_you_mean
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowFlags(Flags):
    """The flags of this command."""

    wrong: bool = False  # only incorrect completions
    correct: bool = False  # only correct completions
    unverified: bool = False  # only completions that could not be judged
    band: Annotated[str, one_of(BANDS)] | None = None  # only problems in this band
    problem: str = ""  # only the problem with this id
    step: int | None = None  # the step to show
    stage: str = "train"  # train, difficulty, eval_before, eval_after or probe
    limit: NonNegativeInt = 10  # show at most this many; 0: all


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 2 if there is nothing to show, with one line that says why."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    flags, (name, workdir) = parse_flags(
        argv, ShowFlags, usage=_USAGE, arguments=["show", "WORKDIR"]
    )
    if name != "show":
        raise UsageError(f"no command {name!r}{did_you_mean(name, ['show'])}")
    file, step = find_rollouts(local_run(workdir), stage=flags.stage, step=flags.step)
    rows = read_rows(file)
    ids = list(dict.fromkeys(row["id"] for row in rows))
    if flags.problem and flags.problem not in ids:
        raise UsageError(
            f"no problem {flags.problem!r} in step {step} of stage "
            f"{flags.stage!r}, which has {len(ids)}, such as {ids[0]!r}"
            f"{did_you_mean(flags.problem, ids)}"
        )
    selected = _select(rows, flags)
    shown = selected[: flags.limit or None]
    lines = [f"{flags.stage}, step {step}: {count_verdicts(rows)}"]
    for row in shown:
        lines += ["", format_row(row)]
    if len(shown) < len(rows):
        rest = "" if len(shown) == len(selected) else "; --limit=0 shows all of them"
        lines += ["", f"{len(shown)} of {len(selected)} that match{rest}"]
    _print_lines(lines)


def _select(rows: Sequence[dict[str, Any]], flags: ShowFlags) -> list[dict]:
    """Returns the rows that match the flags; several verdict flags are alternatives."""
    verdicts = {status for flag, status in _VERDICTS.items() if vars(flags)[flag]}
    return [
        row
        for row in rows
        if (not verdicts or row["verdict"] in verdicts)
        and flags.band in (None, row.get("band"))
        and flags.problem in ("", row["id"])
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
