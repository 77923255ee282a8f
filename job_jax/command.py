"""The command line: from argv, through a config file and overrides, to a config.

absl.flags parses a command's plain flags. `--config.a.b=v` is read here, because
ml_collections' config_flags assigns overrides one by one to the config object, and ours
is frozen and lets fields that belong together (batch and minibatches) be checked only
once all of them are known.
"""

import argparse
import dataclasses
import inspect
import json
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import flags

from job_jax import processes
from job_jax.config_io import AnySection, alternatives, from_json, override
from job_jax.schema import (
    ConfigError,
    Section,
    did_you_mean,
    sections,
    type_name,
    unwrap,
    walk,
)

DONE, FAILED, BAD_USAGE, STOPPED = 0, 1, 2, 75

# "    steps: Whole = 200  # rollout batches": a field's name and what is said of it.
_COMMENT = re.compile(r"^    (\w+): .*?  # (.*)$", re.MULTILINE)


class UsageError(Exception):
    """A command line or config file that cannot be used. One line, for exit code 2."""


class StoppedError(Exception):
    """The run was asked to stop and has saved what it needs to go on."""


def exit_code(action: Callable[[], None], failures: tuple[type[Exception], ...]) -> int:
    """Returns the exit code of a command whose work is `action`.

    `failures` are the errors that a user can mend; each becomes one line. Anything else
    is our bug and shows its traceback. Of several processes all end: one that fails
    tells the others why.
    """
    code, said = _ended(action, failures)
    failed = code not in (DONE, STOPPED)
    if said and (failed or processes.is_primary()):
        print(said, file=sys.stderr)
    return processes.leave(code, said.splitlines()[-1] if said else "", failed=failed)


def _ended(
    action: Callable[[], None], failures: tuple[type[Exception], ...]
) -> tuple[int, str]:
    """Returns the exit code, and what there is to say."""
    try:
        action()
    except (UsageError, ConfigError) as error:
        return BAD_USAGE, f"error: {error}"
    except failures as error:
        return FAILED, f"error: {error}"
    except StoppedError:
        return STOPPED, "stopped; run the same command again to go on"
    except (Exception, KeyboardInterrupt) as error:
        if processes.count() == 1:
            raise
        trace = "".join(traceback.format_exception(error)).rstrip()
        return FAILED, processes.explained(error) or trace
    return DONE, ""


class ArgumentParser(argparse.ArgumentParser):
    """argparse whose refusals are UsageErrors that name the nearest flag."""

    def __init__(self, **settings: Any):
        super().__init__(allow_abbrev=False, **settings)

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Returns what `argv` says. Prints the help and exits 0 on --help."""
        chosen, unknown = self.parse_known_args(argv)
        if unknown:
            flag = unknown[0].split("=")[0]
            nearest = did_you_mean(flag, list(self._option_string_actions))
            raise UsageError(f"unknown argument {flag!r}{nearest}")
        return chosen

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(message)


def command_flags() -> flags.FlagValues:
    """Returns the flags of every command that takes a config, ready for more."""
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    flags.DEFINE_string(
        "config",
        None,
        "a Python file with get_config() -> Config, or the config.json of a workdir",
        flag_values=values,
    )
    flags.DEFINE_boolean("help", False, "show this and exit", flag_values=values)
    return values


def read_command(
    argv: Sequence[str],
    values: flags.FlagValues,
    *,
    usage: str,
    default: AnySection,
) -> tuple[Path, AnySection]:
    """Returns the config's file and the config with its overrides; fills `values`.

    `default` is a config of the class that the file must hold. Raises UsageError.
    Prints the help and exits 0 on --help.
    """
    try:
        rest = values(["", *argv], known_only=True)[1:]
    except (flags.Error, ValueError) as error:
        raise UsageError(str(error)) from error
    if values.help:
        print(help_text(values, usage=usage, config=default))
        raise SystemExit(0)
    overrides = _overrides(rest, values, default)
    if not values.config:
        raise UsageError(
            "--config=FILE is missing, for example --config=configs/quickstart.py"
        )
    path = Path(values.config)
    config = load_config(path, type(default))
    try:
        return path, override(config, overrides)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def load_config(path: Path, kind: type[AnySection]) -> AnySection:
    """Returns the config that a recipe or a workdir's config.json holds."""
    if not path.is_file():
        siblings = [str(f) for f in path.parent.glob(f"*{path.suffix}") if f.is_file()]
        raise UsageError(
            f"no config file {str(path)!r}{did_you_mean(str(path), siblings)}"
        )
    if path.suffix == ".py":
        return _run_recipe(path, kind)
    if path.suffix == ".json":
        return _read_record(path, kind)
    raise UsageError(f"{path} is neither a Python file (.py) nor a config.json")


def help_text(values: flags.FlagValues, *, usage: str, config: Section) -> str:
    """Returns every flag and every config field: path, default, type and comment."""
    lines = [usage, "flags:"]
    lines += [f"  {f'--{name}':<14} {values[name].help}" for name in values]
    lines += ["", "config fields, with the value that they have unless FILE sets them:"]
    for path, section in sections(config):
        lines += _section_help(path, section, path.rstrip(".") or "config")
    for path, section in alternatives(config):
        chosen = f"{path}kind={vars(section)['kind']}, where FILE chooses it"
        for inner, each in sections(section, path):
            title = chosen if each is section else f"{inner.rstrip('.')} of {chosen}"
            lines += _section_help(inner, each, title)
    return "\n".join(lines)


def _section_help(path: str, section: Section, title: str) -> Iterator[str]:
    yield f"\n{title}: {inspect.cleandoc(type(section).__doc__ or '').splitlines()[0]}"
    comments = dict(_COMMENT.findall(inspect.getsource(type(section))))
    for field in dataclasses.fields(section):
        value = vars(section)[field.name]
        if not isinstance(value, Section):
            kind, bound = unwrap(field.type)
            notes = [type_name(kind)]
            notes += [f"must {bound.text}"] if bound else []
            notes += [comments[field.name]] if field.name in comments else []
            assignment = f"--config.{path}{field.name}={_shown(value)}"
            yield f"  {assignment:<50} {'; '.join(notes)}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, str) and not value.isidentifier():
        return repr(value)
    return str(value)


def _overrides(
    args: Iterable[str], values: flags.FlagValues, config: Section
) -> dict[str, str]:
    """Returns key -> text of every `--config.key=text`; refuses all other `args`."""
    overrides = {}
    remaining = iter(args)
    for arg in remaining:
        if not arg.startswith("-"):
            raise UsageError(f"unexpected argument {arg!r}; write --flag=value")
        name, equals, text = arg.lstrip("-").partition("=")
        if not name.startswith("config."):
            known = [f"--{flag}" for flag in values]
            known += [f"--config.{path}" for path, _, _ in walk(config)]
            nearest = did_you_mean(f"--{name}", known)
            raise UsageError(f"unknown flag '--{name}'{nearest}")
        if not equals and (text := next(remaining, "")) == "":
            raise UsageError(f"--{name} needs a value: --{name}=VALUE")
        overrides[name.removeprefix("config.")] = text
    return overrides


def _run_recipe(path: Path, kind: type[AnySection]) -> AnySection:
    """Returns what the file's get_config() returns; errors name file and line."""
    try:
        namespace = runpy.run_path(str(path))
        if "get_config" not in namespace:
            raise ConfigError("the file defines no function get_config() -> Config")
        config = namespace["get_config"]()
        if not isinstance(config, kind):
            raise ConfigError(
                f"get_config() returned {type(config).__name__}, not "
                f"{kind.__module__}.{kind.__name__}"
            )
    except Exception as error:
        raise UsageError(f"{path}{_line(error, path)}: {_sentence(error)}") from error
    return config


def _line(error: Exception, path: Path) -> str:
    """Returns ":12", where line 12 of the file is the last of its lines to have run."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f":{lines[-1]}" if lines else ""


def _sentence(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {text}".split())


def _read_record(path: Path, kind: type[AnySection]) -> AnySection:
    """Returns the config of a config.json, where it stands under the key "config"."""
    try:
        record = json.loads(path.read_text())
        if not isinstance(record, dict) or "config" not in record:
            raise ConfigError("no config under the key 'config'")
        return from_json(kind, record["config"])
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
