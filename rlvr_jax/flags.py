"""The command line: from argv, through a config file and overrides, to a `Config`.

absl.flags parses a command's plain flags. `--config.a.b=v` is read here, because
ml_collections' config_flags assigns overrides one by one to the config object, and ours
is frozen and lets fields that belong together (batch and minibatches) be checked only
once all of them are known.
"""

import dataclasses
import inspect
import json
import re
import runpy
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from rlvr_jax.config import Config
from rlvr_jax.config_io import alternatives, from_json, override
from rlvr_jax.schema import (
    ConfigError,
    Section,
    did_you_mean,
    sections,
    type_name,
    unwrap,
    walk,
)

STAGES = ("all", "warmup", "train", "eval", "report")

_USAGE = """\
usage: python -m rlvr_jax.main --config=FILE --workdir=DIR [--config.a.b=v ...]

Runs the stages of a recipe. Run again, it goes on where it stopped.
"""
# "    steps: Whole = 200  # rollout batches": a field's name and what is said of it.
_COMMENT = re.compile(r"^    (\w+): .*?  # (.*)$", re.MULTILINE)


class UsageError(Exception):
    """A command line or config file that cannot be used. One line, for exit code 2."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Invocation:
    """What the command was asked to do. Written by `parse`, read by `main`."""

    config: Config
    config_path: Path
    workdir: Path | None  # None with dry_run only
    stage: str  # one of STAGES
    dry_run: bool


def parse(argv: Sequence[str]) -> Invocation:
    """Returns what `argv`, the arguments after the program's name, ask for.

    Raises UsageError. Prints the help and exits 0 on --help.
    """
    values = command_flags()
    flags.DEFINE_string(
        "workdir", None, "where the run lives; made if missing", flag_values=values
    )
    flags.DEFINE_enum(
        "stage", "all", STAGES, "what to run; all by default", flag_values=values
    )
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "print config, parameter count, mesh and memory; start nothing",
        flag_values=values,
    )
    config_path, config = read_command(argv, values, usage=_USAGE)
    workdir, dry_run = values.workdir, values.dry_run
    if not workdir and not dry_run:
        raise UsageError("--workdir=DIR is missing; say where the run shall live")
    return Invocation(
        config=config,
        config_path=config_path,
        workdir=Path(workdir) if workdir else None,
        stage=values.stage,
        dry_run=dry_run,
    )


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
    argv: Sequence[str], values: flags.FlagValues, *, usage: str
) -> tuple[Path, Config]:
    """Returns the config's file and the config with its overrides; fills `values`.

    Raises UsageError. Prints the help and exits 0 on --help.
    """
    try:
        rest = values(["", *argv], known_only=True)[1:]
    except (flags.Error, ValueError) as error:
        raise UsageError(str(error)) from error
    if values.help:
        print(help_text(values, usage=usage))
        raise SystemExit(0)
    overrides = _overrides(rest, values)
    if not values.config:
        raise UsageError(
            "--config=FILE is missing, for example --config=configs/quickstart.py"
        )
    path = Path(values.config)
    config = load_config(path)
    try:
        return path, override(config, overrides)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def load_config(path: Path) -> Config:
    """Returns the config that a recipe or a workdir's config.json holds."""
    if not path.is_file():
        siblings = [str(f) for f in path.parent.glob(f"*{path.suffix}") if f.is_file()]
        raise UsageError(
            f"no config file {str(path)!r}{did_you_mean(str(path), siblings)}"
        )
    if path.suffix == ".py":
        return _run_recipe(path)
    if path.suffix == ".json":
        return _read_record(path)
    raise UsageError(f"{path} is neither a Python file (.py) nor a config.json")


def help_text(values: flags.FlagValues, *, usage: str) -> str:
    """Returns every flag and every config field: path, default, type and comment."""
    config = Config()
    lines = [usage, "flags:"]
    lines += [f"  {f'--{name}':<14}{values[name].help}" for name in values]
    lines += ["", "config fields, with the value that they have unless FILE sets them:"]
    for path, section in sections(config):
        lines += _section_help(path, section, path.rstrip(".") or "config")
    for path, section in alternatives(config):
        title = f"{path}kind={vars(section)['kind']}, where FILE chooses it"
        lines += _section_help(path, section, title)
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


def _overrides(args: Iterable[str], values: flags.FlagValues) -> dict[str, str]:
    """Returns key -> text of every `--config.key=text`; refuses all other `args`."""
    overrides = {}
    remaining = iter(args)
    for arg in remaining:
        if not arg.startswith("-"):
            raise UsageError(f"unexpected argument {arg!r}; write --flag=value")
        name, equals, text = arg.lstrip("-").partition("=")
        if not name.startswith("config."):
            known = [f"--{flag}" for flag in values]
            known += [f"--config.{path}" for path, _, _ in walk(Config())]
            nearest = did_you_mean(f"--{name}", known)
            raise UsageError(f"unknown flag '--{name}'{nearest}")
        if not equals and (text := next(remaining, "")) == "":
            raise UsageError(f"--{name} needs a value: --{name}=VALUE")
        overrides[name.removeprefix("config.")] = text
    return overrides


def _run_recipe(path: Path) -> Config:
    """Returns what the file's get_config() returns; errors name file and line."""
    try:
        namespace = runpy.run_path(str(path))
        if "get_config" not in namespace:
            raise ConfigError("the file defines no function get_config() -> Config")
        config = namespace["get_config"]()
        if not isinstance(config, Config):
            raise ConfigError(
                f"get_config() returned {type(config).__name__}, not Config"
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


def _read_record(path: Path) -> Config:
    """Returns the config of a config.json, where it stands under the key "config"."""
    try:
        record = json.loads(path.read_text())
        if not isinstance(record, dict) or "config" not in record:
            raise ConfigError("no config under the key 'config'")
        return from_json(record["config"])
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
