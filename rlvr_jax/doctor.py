"""The command that finds the faults of a run in the log of another trainer.

    python -m rlvr_jax.doctor out/checkpoint-500/trainer_state.json

It starts without JAX, so that it answers at once.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import flags

from job_jax.output import keep_output_going
from job_jax.schema import did_you_mean
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
_WINDOW = LogConfig.alarm_window
_USAGE = """\
usage: python -m rlvr_jax.doctor [--window=N] [--names=FILE] [--json] LOG [LOG ...]

LOG  the log of a run with another trainer; its content says which one:
       TRL       trainer_state.json, or a directory with it or with checkpoint-N
       verl      JSON lines of its file logger
       prime-rl  metrics.jsonl; give the orchestrator's and the trainer's
     Several logs of one run are joined by step.

flags:"""


def main(argv: Sequence[str]) -> int:
    """Prints the faults of a run; returns 0, or 2 if a log cannot be read."""
    keep_output_going()
    values = _flags()
    try:
        paths = _parse(argv, values)
        if values.help:
            print(_USAGE)
            for name in values:
                print(f"  {f'--{name}':<10} {values[name].help}")
            return 0
        trainers = [read_names(Path(values.names))] if values.names else _TRAINERS
        log = read_log(paths, trainers)
    except (flags.Error, LogError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    findings = check_log(log, window=values.window)
    if values.json:
        for finding in findings:
            print(json.dumps(dataclasses.asdict(finding)))
    else:
        print("\n".join(_report(log, findings, window=values.window)))
    return 0


def _parse(argv: Sequence[str], values: flags.FlagValues) -> list[Path]:
    values.set_gnu_getopt(True)
    try:
        given = values(["", *("--help" if arg == "-h" else arg for arg in argv)])[1:]
    except flags.UnrecognizedFlagError as error:
        name = f"--{error.flagname}"
        nearest = did_you_mean(name, [f"--{flag}" for flag in values])
        raise flags.Error(f"unknown flag {name!r}{nearest}") from error
    if not given and not values.help:
        raise flags.Error("LOG missing; name the log of a run (see --help)")
    return [Path(path) for path in given]


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


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_integer(
        "window",
        _WINDOW,
        f"rows of the log that a check looks back ({_WINDOW})",
        lower_bound=2,
        flag_values=values,
    )
    flags.DEFINE_string(
        "names",
        None,
        "a JSON file with the names of another trainer's metrics",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "json", False, "print the findings as JSON lines", flag_values=values
    )
    flags.DEFINE_boolean("help", False, "show this and exit", flag_values=values)
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
