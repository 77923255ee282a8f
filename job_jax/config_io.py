"""Configs as text: to and from JSON, overrides by dotted key, differences."""

import ast
import contextlib
import copy
import dataclasses
import functools
import json
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from job_jax.hints import explain_key, section_shorthands
from job_jax.registry import OpenSection
from job_jax.schema import (
    ConfigError,
    ConfigSection,
    check_value,
    did_you_mean,
    has_default,
    iter_fields,
    section_class,
    split_annotation,
)

SectionT = TypeVar("SectionT", bound=ConfigSection)


def to_json(config: ConfigSection) -> dict[str, Any]:
    """Returns the config as JSON: nested objects, tuples as lists."""
    values = {
        field.name: _value_to_json(vars(config)[field.name])
        for field in dataclasses.fields(config)
    }
    return {**config.tags(), **values}


def _value_to_json(value: object) -> Any:
    if isinstance(value, ConfigSection):
        return to_json(value)
    return list(map(_value_to_json, value)) if isinstance(value, tuple) else value


def from_json(config_class: type[SectionT], data: object) -> SectionT:
    """Returns the config that `to_json` wrote, in this version or an earlier one.

    A missing field was added after the config was written. It gets its default, which
    is what the code did before the field existed, or its value in `earlier_values` if
    the default has changed since. Raises ConfigError on unknown keys, on empty data,
    and on a missing field without a default.
    """
    if data == {}:
        raise ConfigError("config is empty")
    return _section_from_json(config_class, data, "")


def from_record(config_class: type[SectionT], path: pathlib.Path) -> SectionT:
    """Returns the config under the key "config" of a config.json.

    Prints to stderr which fields get defaults because they were added later. Raises
    OSError, and ValueError if the file holds no such config.
    """
    record = json.loads(path.read_text())
    if not isinstance(record, dict) or "config" not in record:
        raise ConfigError("no config under the key 'config'")
    config = from_json(config_class, record["config"])
    lines = diff_json(record["config"], to_json(config))
    if later := [line.split(":")[0] for line in lines if ": absent -> " in line]:
        _tell_once(
            f"{path} was written by an earlier version without {', '.join(later)}; "
            "these get the values that version used"
        )
    return config


@functools.cache
def _tell_once(line: str) -> None:
    """Prints a line to stderr, but only on the first call with that line."""
    print(line, file=sys.stderr)


def diff(old: ConfigSection, new: ConfigSection) -> list[str]:
    """Returns a line "train.steps: 100 -> 200" for every field that differs."""
    before = {path: repr(value) for path, _, value in iter_fields(old)}
    after = {path: repr(value) for path, _, value in iter_fields(new)}
    return [
        f"{path}: {before.get(path, 'absent')} -> {after.get(path, 'absent')}"
        for path in before | after
        if before.get(path) != after.get(path)
    ]


def keep_earlier_values(saved: SectionT, config: SectionT) -> SectionT:
    """Returns the config with `earlier_values` where `saved` has them.

    A run that began before a field existed continues as it began, unless the config
    sets the field to a value other than its default.
    """
    if type(saved) is not type(config):
        return config
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        before, now = vars(saved)[field.name], vars(config)[field.name]
        is_earlier = (field.name, before) in config.earlier_values.items()
        if isinstance(now, ConfigSection):
            if (kept := keep_earlier_values(before, now)) is not now:
                changed[field.name] = kept
        elif is_earlier and before != now == field.default:
            changed[field.name] = before
    whole: Any = config
    return dataclasses.replace(whole, **changed) if changed else config


def diff_json(
    old: Mapping[str, object], new: Mapping[str, object], path: str = ""
) -> list[str]:
    """Returns `diff` of two configs as JSON, which may come from different versions.

    A section that only one of them has becomes one line.
    """
    lines = []
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += diff_json(before, after, f"{path}{name}.")
        elif name not in old or name not in new or before != after:
            told = (
                "absent"
                if name not in side
                else "present"
                if isinstance(side[name], Mapping)
                else repr(side[name])
                for side in (old, new)
            )
            lines.append(f"{path}{name}: {' -> '.join(told)}")
    return lines


def override(config: SectionT, overrides: Mapping[str, str]) -> SectionT:
    """Returns `config` with the text of each dotted key read as its field's type.

    All fields change at once, so a section is checked with all its overrides in place.
    If the class of an open choice is overridden, fields that all its classes share keep
    their values, and the others start at their defaults. Raises ConfigError.
    """
    config = _choose_classes(config, overrides, "")
    known = {path for path, _, _ in iter_fields(config)}
    words = section_shorthands(config)
    for key, text in overrides.items():
        if key not in known and text not in words.get(key, ()):
            raise ConfigError(explain_key(key, text, config))
    return _apply_overrides(config, overrides, "")


def override_faults(config: ConfigSection, overrides: Mapping[str, str]) -> list[str]:
    """Returns a line for each override that is wrong by itself.

    That is an unknown key, or a value of the wrong type or out of bounds. `override`
    raises for fields that do not fit together.
    """
    try:
        config = _choose_classes(config, overrides, "")
    except ConfigError as error:
        return [str(error)]
    kinds = {path: kind for path, kind, _ in iter_fields(config)}
    words = section_shorthands(config)
    faults = []
    for key, text in overrides.items():
        if text in words.get(key, ()):
            continue
        try:
            if key not in kinds:
                raise ConfigError(explain_key(key, text, config))
            check_value(key, parse_value(text, kinds[key]), kinds[key])
        except ConfigError as error:
            faults.append(str(error))
    return faults


def _choose_classes(section: Any, overrides: Mapping[str, str], path: str) -> Any:
    """Returns the section with the classes that the overrides choose."""
    changed = {}
    for field in dataclasses.fields(section):
        key, value = f"{path}{field.name}", vars(section)[field.name]
        if not isinstance(value, ConfigSection):
            continue
        if overrides.get(key) in value.shorthands:
            value = type(value)(**value.shorthands[overrides[key]])
        if isinstance(value, OpenSection) and f"{key}.{value.tag}" in overrides:
            base: Any = field.type
            chosen = base.choose(overrides[f"{key}.{value.tag}"], path=f"{key}.")
            if chosen is not type(value):
                shared = [field.name for field in dataclasses.fields(base)]
                value = _construct(
                    chosen, {name: vars(value)[name] for name in shared}, f"{key}."
                )
        changed[field.name] = _choose_classes(value, overrides, f"{key}.")
    # A copy, because constructing it would check it before the overrides are in place.
    copied = copy.copy(section)
    for name, value in changed.items():
        object.__setattr__(copied, name, value)
    return copied


def _apply_overrides(
    section: ConfigSection, overrides: Mapping[str, str], path: str
) -> Any:
    values = {}
    for field in dataclasses.fields(section):
        key, value = f"{path}{field.name}", vars(section)[field.name]
        if isinstance(value, ConfigSection):
            value = _apply_overrides(value, overrides, f"{key}.")
        elif key in overrides:
            value = parse_value(overrides[key], field.type)
        elif field.name not in section.stated:
            continue
        values[field.name] = value
    return _construct(type(section), values, path)


def _section_from_json(declared: type[ConfigSection], data: object, path: str) -> Any:
    """Returns the section in `data`; for an open choice, of the class named there."""
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path.rstrip('.') or 'config'} expects an object, got {data!r}"
        )
    chosen = declared
    if issubclass(chosen, OpenSection):
        name = data.get(chosen.tag, chosen.earlier_tag)
        if not isinstance(name, str):
            raise ConfigError(
                f"{path}{chosen.tag} expects the name of a {chosen.registry.what}, got "
                f"{name!r}"
            )
        data = {key: value for key, value in data.items() if key != chosen.tag}
        chosen = chosen.choose(name, path=path)
    fields = {field.name: field for field in dataclasses.fields(chosen)}
    for name in data:
        if name not in fields:
            nearest = did_you_mean(f"{path}{name}", [f"{path}{key}" for key in fields])
            raise ConfigError(f"unknown config key '{path}{name}'{nearest}")
    data = {**chosen.earlier_values, **data}
    values = {}
    for name, field in fields.items():
        if name not in data:
            if not has_default(field):
                raise ConfigError(f"config key '{path}{name}' is missing")
            continue
        values[name] = data[name]
        if inner := section_class(field.type):
            values[name] = _section_from_json(inner, data[name], f"{path}{name}.")
    return _construct(chosen, values, path)


def _construct(config_class: Any, values: dict[str, Any], path: str) -> Any:
    """Returns the section; an error names the value and its fix by their full paths."""
    try:
        return config_class(**values)
    except ConfigError as error:
        names = tuple(field.name for field in dataclasses.fields(config_class))
        fix = rf"\b(set|lower|raise|remove) (?=(?:{'|'.join(names)})\b)"
        message = re.sub(fix, rf"\1 {path}", str(error)) if names else str(error)
        if path and not message.startswith(names):  # does not start with a field
            raise ConfigError(f"{path.removesuffix('.')}: {message}") from error
        raise ConfigError(f"{path}{message}") from error


def parse_value(text: str, kind: object) -> Any:
    """Returns `text` as a value of a field's type.

    Text that cannot be read as that type is returned unchanged. The section then
    refuses it, as it refuses every value of another type.
    """
    kind, _ = split_annotation(kind)
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is int or kind is float:
        try:
            return kind(text)
        except ValueError:
            return text
    if get_origin(kind) is tuple:
        return tuple(parse_value(each, get_args(kind)[0]) for each in _split_list(text))
    return text


def _split_list(text: str) -> list[str]:
    """Returns the items of a list: a,b or (a, b) or ["a", "b"].

    >>> _split_list("[1, 2]"), _split_list('("a, b",)'), _split_list("[/INST]")
    (['1', '2'], ['a, b'], ['[/INST]'])
    """
    text = text.strip()
    if text.startswith(("(", "[")):
        with contextlib.suppress(ValueError, SyntaxError):
            value = ast.literal_eval(text)
            if isinstance(value, list | tuple):
                return [str(item) for item in value]
    is_list = text[:1] + text[-1:] in ("()", "[]") and ("," in text or len(text) == 2)
    items = (text[1:-1] if is_list else text).split(",")
    return [item for item in (each.strip(" '\"") for each in items) if item]
