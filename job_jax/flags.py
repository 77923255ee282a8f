"""The flags of a command, as the fields of a class.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RewriteFlags(Flags):
        in_: str  # the file of problems
        first: NonNegativeInt = 0  # read only N problems; 0: all

A field's type and bounds are checked, and its comment is the flag's help. A field
without a default must be given. `in_` is --in, because `in` is a word of Python.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated, TypeVar

from absl import flags

from job_jax.command_help import field_comments
from job_jax.config_io import parse_value
from job_jax.schema import (
    ConfigError,
    ConfigSection,
    Constraint,
    check_value,
    did_you_mean,
    has_default,
    split_annotation,
)

_REPEATED = Constraint("be texts", lambda texts: True)
# A flag that may be given several times, each time with one text.
Repeated = Annotated[tuple[str, ...], _REPEATED]


class UsageError(Exception):
    """A command line or config file cannot be used: one line per error; exit code 2."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(ConfigSection):
    """Base of the flags of a command."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFlags(Flags):
    """Base of the flags of a command that reads a recipe."""

    # a recipe's name, a Python file with get_config(), or a workdir's config.json
    config: str = ""


FlagsT = TypeVar("FlagsT", bound=Flags)


def one_of(names: Iterable[str]) -> Constraint:
    """Returns the constraint of a flag that takes one of these names."""
    choices = list(names)
    return Constraint(f"be one of {', '.join(choices)}", choices.__contains__)


def parse_flags(
    argv: Sequence[str],
    kind: type[FlagsT],
    *,
    usage: str,
    arguments: Sequence[str] = (),
    at_least: bool = False,
) -> tuple[FlagsT, list[str]]:
    """Returns the flags, and the arguments that are not flags.

    There must be exactly as many as `arguments` names, or with `at_least` no fewer.
    Raises UsageError otherwise, and on a flag that is unknown, wrong or missing. On
    --help, prints it and exits.
    """
    values = define_flags(kind)
    try:
        given = values(["", *("--help" if arg == "-h" else arg for arg in argv)])[1:]
    except flags.UnrecognizedFlagError as error:
        name = f"--{error.flagname}"
        nearest = did_you_mean(name, [f"--{flag}" for flag in values])
        raise UsageError(f"unknown flag {name!r}{nearest}") from error
    except flags.IllegalFlagValueError as error:
        raise UsageError(_plain_flag_error(str(error))) from error
    except flags.Error as error:
        raise UsageError(str(error)) from error
    if values.help:
        print("\n".join([usage, *describe_flags(kind)]))
        raise SystemExit(0)
    if len(given) > len(arguments) and not at_least:
        raise UsageError(
            f"unexpected argument {given[len(arguments)]!r}; see --help"
            if arguments
            else f"unexpected argument {given[0]!r}; write --flag=value"
        )
    if len(given) < len(arguments):
        missing = " ".join(arguments[len(given) :])
        raise UsageError(
            f"{missing} missing; expected {' '.join(arguments)} (see --help)"
        )
    found, faults = read_flags(kind, values)
    if faults or found is None:
        raise UsageError("\n".join(faults))
    return found, given


def define_flags(kind: type[Flags]) -> flags.FlagValues:
    """Returns absl's flags for the fields of `kind`, and --help, before parsing."""
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    for field in dataclasses.fields(kind):
        inner, constraint = split_annotation(field.type)
        name = flag_name(field.name)
        if inner is bool:
            flags.DEFINE_boolean(name, None, "", flag_values=values)
        elif constraint is _REPEATED:
            flags.DEFINE_multi_string(name, None, "", flag_values=values)
        else:
            flags.DEFINE_string(name, None, "", flag_values=values)
    flags.DEFINE_boolean("help", False, "", flag_values=values)
    return values


def read_flags(
    kind: type[FlagsT], values: flags.FlagValues
) -> tuple[FlagsT | None, list[str]]:
    """Returns the flags, and a line for each that is wrong or missing.

    A wrong flag has its default. Without a default, there are no flags to return.
    """
    found, faults = {}, []
    for field in dataclasses.fields(kind):
        name = f"--{flag_name(field.name)}"
        given = values[flag_name(field.name)].value
        value = parse_value(given, field.type) if isinstance(given, str) else given
        if not has_default(field) and value in (None, "", ()):
            comment = field_comments(kind)[field.name]
            faults.append(f"{name} is missing: {comment}")
        elif given is not None:
            try:
                found[field.name] = check_value(name, value, field.type)
            except ConfigError as error:
                faults.append(str(error))
    required = {
        field.name for field in dataclasses.fields(kind) if not has_default(field)
    }
    return kind(**found) if required <= set(found) else None, faults


def flag_name(field: str) -> str:
    """Returns the flag of a field: "in" for `in_`."""
    return field.rstrip("_")


def describe_flags(kind: type[Flags]) -> list[str]:
    """Returns a line of help for each flag: its name, its comment and its default."""
    comments = field_comments(kind)
    lines = []
    for field in dataclasses.fields(kind):
        unset = not has_default(field) or field.default in (None, False, "", ())
        default = "" if unset else f" (default: {_as_text(field.default)})"
        name = f"--{flag_name(field.name)}"
        lines.append(f"  {name:<18} {comments[field.name]}{default}")
    return [*lines, f"  {'--help':<18} show this and exit"]


def _as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _plain_flag_error(text: str) -> str:
    """Returns absl's error about a flag, without the tuple of a boolean flag's."""
    name, found, _ = text.partition(": ('Non-boolean argument")
    if not found:
        return text
    given = name.removeprefix("flag ")
    return f"{given} is not true or false; write {given.partition('=')[0]} alone"
