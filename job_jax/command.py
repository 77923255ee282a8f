"""Parses the command line: flags, a config file and overrides.

absl.flags splits a command's plain flags. `--config.a.b=v` is parsed here, because
ml_collections' config_flags assigns overrides to the config object one by one. Our
config is frozen, and fields that belong together (batch and minibatches) can be checked
only once all of them are known.
"""

import dataclasses
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from absl import flags

from job_jax import processes
from job_jax.command_help import help_text
from job_jax.config_io import (
    SectionT,
    from_record,
    override,
    override_faults,
)
from job_jax.disk import describe_failure
from job_jax.flags import (
    ConfigFlags,
    UsageError,
    define_flags,
    describe_flags,
    read_flags,
)
from job_jax.hints import explain_flag
from job_jax.output import keep_output_going
from job_jax.recipes import find_config, suggest_config
from job_jax.schema import (
    ConfigError,
    ConfigSection,
    did_you_mean,
)

T = TypeVar("T")
ConfigFlagsT = TypeVar("ConfigFlagsT", bound=ConfigFlags)

DONE, FAILED, BAD_USAGE, STOPPED = 0, 1, 2, 75

# What a recipe may define; each is for its own command.
_RECIPE_FUNCTIONS = ("get_config", "get_experiment")


class StoppedError(Exception):
    """The run got a stop signal and has saved everything it needs to resume."""


def check_output_file(path: Path, endings: Sequence[str]) -> Path:
    """Returns the file that --out names. Raises UsageError if it cannot be written.

    Its name must have one of the endings, and its directory must exist.
    """
    if path.suffix not in endings:
        raise UsageError(
            f"--out={path} has the ending {path.suffix!r}; it may be one of "
            f"{', '.join(endings)}{did_you_mean(path.suffix, endings)}"
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"--out={path}: the directory {str(path.parent)!r} does not exist; make it"
        )
    return path


def run_command(
    action: Callable[[], None], expected_errors: tuple[type[Exception], ...]
) -> int:
    """Runs `action`, the work of a command, and returns the exit code.

    `expected_errors` are errors that a user can fix; each becomes one line. Anything
    else is our bug and shows its traceback. If one of several processes fails, all end.
    """
    keep_output_going()
    code, said = _run_action(action, expected_errors)
    failed = code not in (DONE, STOPPED)
    if said and (failed or processes.is_primary()):
        print(said, file=sys.stderr)
    return processes.shutdown(
        code, said.splitlines()[-1] if said else "", failed=failed
    )


def _run_action(
    action: Callable[[], None], expected_errors: tuple[type[Exception], ...]
) -> tuple[int, str]:
    """Returns the exit code and the text to print."""
    try:
        action()
    except (UsageError, ConfigError) as error:
        lines = str(error).splitlines()
        return BAD_USAGE, "\n".join(f"error: {line}" for line in lines)
    except expected_errors as error:
        text = describe_failure(error) if isinstance(error, OSError) else error
        return FAILED, f"error: {text}"
    except StoppedError:
        return STOPPED, "stopped; run the same command again to continue"
    except (Exception, KeyboardInterrupt) as error:
        if processes.process_count() == 1:
            raise
        trace = "".join(traceback.format_exception(error)).rstrip()
        return FAILED, processes.peer_failure(error) or trace
    return DONE, ""


def parse_command(
    argv: Sequence[str],
    kind: type[ConfigFlagsT],
    *,
    usage: str,
    default: SectionT,
    find_faults: Callable[[ConfigFlagsT], Iterable[str]] = lambda given: (),
    needs_config: bool = True,
) -> tuple[ConfigFlagsT, Path, SectionT]:
    """Returns the flags, the config's file, and the config with its overrides.

    `default` is a config of the class that the file must hold. `find_faults` returns a
    line for each error in the flags together. Without `needs_config`, a missing file
    means `default`. Raises one UsageError that lists all errors. Prints the help and
    exits 0 on --help.
    """
    values = define_flags(kind)
    rest, faults = _parse_plain_flags(argv, values)
    if values.help:
        print(help_text(describe_flags(kind), usage=usage, config=default))
        raise SystemExit(0)
    overrides, refused = _parse_overrides(rest, values, default)
    given, wrong_flags = read_flags(kind, values)
    faults += [*wrong_flags, *refused]
    if given and not wrong_flags:  # wrong ones would seem not to fit the others
        faults += find_faults(given)
    path, config = Path(""), default
    if not values.config and not needs_config:
        if overrides:
            name = next(iter(overrides))
            faults.append(f"--config.{name} changes a config; add --config=FILE")
    elif not values.config:
        faults.append("--config=FILE is missing, for example --config=quickstart")
    else:
        try:
            path = find_config(values.config)
            config = load_config(path, type(default))
            if wrong := override_faults(config, overrides):
                faults += wrong
            else:
                config = override(config, overrides)
        except (ConfigError, UsageError) as error:
            faults.append(str(error))
    if faults or given is None:
        raise UsageError("\n".join(faults))
    return given, path, config


def _parse_plain_flags(
    argv: Sequence[str], values: flags.FlagValues
) -> tuple[list[str], list[str]]:
    """Fills `values`; returns the remaining arguments, and a line for each fault.

    absl stops at the first fault, so we remove the argument at fault and parse again.
    """
    argv, faults = list(argv), []
    while (fault := _first_fault(argv, values)) is not None:
        faults.append(fault)
        # The shortest prefix with the same fault ends in the argument at fault.
        last = next(
            n
            for n in range(1, len(argv) + 1)
            if _first_fault(argv[:n], values) == fault
        )
        is_value = not argv[last - 1].startswith("-")
        del argv[last - 1 - is_value : last]
    _first_fault((), values)
    return values(["", *argv], known_only=True)[1:], faults


def _first_fault(argv: Sequence[str], values: flags.FlagValues) -> str | None:
    """Returns absl's first error or None; `values` hold the flags parsed until then."""
    for name in values:
        values[name].unparse()  # else a repeatable flag keeps the last try's values
    try:
        values(["", *argv], known_only=True)
    except (flags.Error, ValueError) as error:
        return str(error)
    return None


def load_config(path: Path, config_class: type[SectionT]) -> SectionT:
    """Returns the config in a recipe or in a workdir's config.json."""
    if path.is_dir():
        recipes = (
            f for f in sorted(path.glob("*.py")) if "get_config" in f.read_text()
        )
        files = [*recipes] or [*path.glob("config.json")]
        example = f", such as {str(files[0])!r}" if files else " with get_config()"
        raise UsageError(
            f"--config={str(path)!r} is a directory; give one file{example}"
        )
    if not path.is_file():
        raise UsageError(f"no config file {str(path)!r}{suggest_config(path)}")
    if path.suffix == ".py":
        return call_recipe(path, "get_config", config_class)
    if path.suffix == ".json":
        return _load_json(path, config_class)
    raise UsageError(f"{path} is neither a Python file (.py) nor a config.json")


def _parse_overrides(
    args: Iterable[str], values: flags.FlagValues, config: ConfigSection
) -> tuple[dict[str, str], list[str]]:
    """Returns key -> text of every `--config.key=text`, and errors of the others."""
    overrides, faults = {}, []
    fields = {field.name for field in dataclasses.fields(config)}
    remaining = iter(args)
    for arg in remaining:
        name, equals, text = arg.lstrip("-").partition("=")
        if not arg.startswith("-"):
            faults.append(f"unexpected argument {arg!r}; write --flag=value")
        elif not name.startswith("config."):
            faults.append(explain_flag(name, [*values], config))
        elif (key := name.removeprefix("config.")) in values and key not in fields:
            faults.append(f"'--{name}' is not a field; did you mean '--{key}'?")
        elif not equals and (text := next(remaining, "")) == "":
            faults.append(f"--{name} needs a value: --{name}=VALUE")
        else:
            overrides[key] = text
    return overrides, faults


def call_recipe(path: Path, function: str, returned: type[T]) -> T:
    """Calls a function of the file, such as get_config(), and returns its value.

    Raises UsageError, which names file and line, if that fails or the value has another
    class than `returned`.
    """
    if path.suffix != ".py":
        raise UsageError(f"{path} must be a Python file (.py) with {function}()")
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.append(folder)  # a recipe may import modules from its own folder
    try:
        namespace = runpy.run_path(str(path))
        if function not in namespace:
            others = [name for name in _RECIPE_FUNCTIONS if name in namespace]
            hint = f"; its {others[0]}() is for another command" if others else ""
            raise ConfigError(
                f"the file defines no function {function}() -> "
                f"{returned.__name__}{hint}"
            )
        value = namespace[function]()
        if not isinstance(value, returned):
            raise ConfigError(
                f"{function}() returned {_full_name(type(value))}, not "
                f"{_full_name(returned)}"
            )
    except Exception as error:
        raise UsageError(
            f"{path}{_error_location(error, path)}: {_error_message(error)}"
        ) from error
    return value


def _full_name(kind: type) -> str:
    """Returns "rlvr_jax.config.run.Config", or "dict" for a class of Python's own."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _error_location(error: Exception, path: Path) -> str:
    """Returns ":12" if line 12 of the file was the last of its lines to run."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f":{lines[-1]}" if lines else ""


def _error_message(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {text}".split())


def _load_json(path: Path, config_class: type[SectionT]) -> SectionT:
    """Returns the config in a config.json, under its key "config"."""
    try:
        return from_record(config_class, path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
