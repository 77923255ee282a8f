"""The command that finds the faults of a run in the log of another trainer.

    python -m rlvr_jax.doctor out/checkpoint-500/trainer_state.json

It starts without JAX, so that it answers at once.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.output import keep_output_going
from job_jax.schema import AtLeastTwo
from rlvr_jax.config import LogConfig
from rlvr_jax.metrics.doctor import Alarm
from rlvr_jax.other_trainers.check import check_log, split_checks
from rlvr_jax.other_trainers.files import LogError
from rlvr_jax.other_trainers.log import Log, read_log
from rlvr_jax.other_trainers.names import read_names
from rlvr_jax.other_trainers.prime_rl import PRIME_RL
from rlvr_jax.other_trainers.trl import TRL
from rlvr_jax.other_trainers.verl import VERL

_TRAINERS = (TRL, VERL, PRIME_RL)
_USAGE = """\
usage: python -m rlvr_jax.doctor [--window=N] [--names=FILE] [--json] LOG [LOG ...]

LOG  the log of a run with another trainer; its content says which one:
       TRL       trainer_state.json, or a directory with it or with checkpoint-N
       verl      JSON lines of its file logger
       prime-rl  metrics.jsonl; give the orchestrator's and the trainer's
     Several logs of one run are joined by step.

flags:"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorFlags(Flags):
    """The flags of this command."""

    # rows of the log that a check looks back
    window: AtLeastTwo = LogConfig.alarm_window
    names: str = ""  # a JSON file with the names of another trainer's metrics
    json: bool = False  # print the findings as JSON lines


def main(argv: Sequence[str]) -> int:
    """Prints the faults of a run; returns 0, or 2 if a log cannot be read."""
    keep_output_going()
    try:
        flags, paths = parse_flags(
            argv, DoctorFlags, usage=_USAGE, arguments=["LOG"], at_least=True
        )
        trainers = [read_names(Path(flags.names))] if flags.names else _TRAINERS
        log = read_log([Path(path) for path in paths], trainers)
    except (UsageError, LogError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    findings = check_log(log, window=flags.window)
    if flags.json:
        for finding in findings:
            print(json.dumps(dataclasses.asdict(finding)))
    else:
        print("\n".join(_report(log, findings, window=flags.window)))
    return 0


def _report(log: Log, findings: Sequence[Alarm], *, window: int) -> Iterator[str]:
    """Yields the lines of the report: header, findings, checks that were not made."""
    made, missing = split_checks(log)
    yield log.describe()
    if (interval := log.interval()) > 1:
        yield (
            f"one row every {interval} steps; below, 'the last {window} steps' are "
            f"{window} rows"
        )
    if len(log.steps) < window:
        yield (
            f"too few rows to say: most checks look at {window} rows (--window), and "
            f"the log has {len(log.steps)}"
        )
    yield from log.left_out
    yield from map(str, findings)
    if not findings:
        yield f"nothing to report; checked: {', '.join(made)}"
    if missing:
        lacks = (f"{', '.join(codes)}: log {what}" for what, codes in missing.items())
        yield f"not checked: {'; '.join(lacks)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
