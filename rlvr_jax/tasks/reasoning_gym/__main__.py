"""The command `python -m rlvr_jax.tasks.reasoning_gym`: list or audit generators."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from job_jax.command import check_output_file, run_command
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.schema import ConfigError, PositiveInt, did_you_mean
from rlvr_jax.tasks.reasoning_gym.audit import (
    Row,
    audit,
    auditable,
    find_disagreements,
)
from rlvr_jax.tasks.reasoning_gym.audit_table import read_pass_rates, write_audit
from rlvr_jax.tasks.reasoning_gym.library import (
    describe_options,
    generator_names,
    library_version,
)
from rlvr_jax.tasks.reasoning_gym.refused import REFUSED

_USAGE = """\
usage: python -m rlvr_jax.tasks.reasoning_gym list [NAME ...]
       python -m rlvr_jax.tasks.reasoning_gym audit [--names=A,B] [--out=FILE] ...

list     shows each generator with its levels and options, as task.generators takes them
audit    measures each generator. Does it accept its own answers and reject others? How
         long do a problem and a score take? How often do problems repeat? The exit code
         is 1 if a faulty generator is not refused, or a refused one has no fault

flags:"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymFlags(Flags):
    """The flags of this command."""

    names: tuple[str, ...] = ()  # generators; default: all
    items: PositiveInt = 200  # problems per generator
    limit_s: float = 8.0  # seconds for each part of a measurement
    out: str = ""  # FILE.md or FILE.json to write
    # what rlvr_jax.evaluate printed about generators; a column of FILE.md
    pass_rates: str = ""


def main(argv: Sequence[str]) -> int:
    """Returns 0 on success, 1 if a table is out of date, 2 on bad usage."""
    return run_command(lambda: _run_command(argv), (OSError, RuntimeError, ValueError))


def _run_command(argv: Sequence[str]) -> None:
    flags, (command, *names) = parse_flags(
        argv, GymFlags, usage=_USAGE, arguments=["COMMAND"], at_least=True
    )
    if command == "list":
        for name in _check_names(names):
            print(describe_options(name))
    elif command == "audit":
        _audit(_check_names([*names, *flags.names]), flags)
    else:
        raise UsageError(
            f"no command {command!r}{did_you_mean(command, ['list', 'audit'])}"
        )


def _check_names(names: Sequence[str]) -> list[str]:
    known = generator_names()
    for name in names:
        if name not in known:
            raise ConfigError(f"no generator {name!r}{did_you_mean(name, known)}")
    return sorted(set(names)) or [name for name in known if name != "composite"]


def _audit(names: Sequence[str], flags: GymFlags) -> None:
    out = check_output_file(Path(flags.out), (".md", ".json")) if flags.out else None
    rates = read_pass_rates(Path(flags.pass_rates)) if flags.pass_rates else {}
    wanted = auditable(names)
    done = 0

    def report(row: Row) -> None:
        nonlocal done
        done += 1
        told = "; ".join(row.faults) or "works"
        refused = " (refused)" if row.name in REFUSED else ""
        print(f"{done}/{len(wanted)} {row.name}{refused}: {told}", flush=True)

    rows = audit(wanted, num_items=flags.items, limit_s=flags.limit_s, on_row=report)
    if out:
        write_audit(out, rows, version=library_version(), pass_rates=rates)
    if lines := find_disagreements(rows):
        raise RuntimeError("\n".join(["refused.py is out of date:", *lines]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
