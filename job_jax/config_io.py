"""A config as text: JSON and back, overrides by dotted key, digest, difference."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

from job_jax.schema import (
    ConfigError,
    Section,
    did_you_mean,
    section_classes,
    sections,
    unwrap,
    walk,
)

AnySection = TypeVar("AnySection", bound=Section)


def to_json(config: Section) -> dict[str, Any]:
    """Returns the config as JSON: nested objects, tuples as lists."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_json(kind: type[AnySection], data: Any) -> AnySection:
    """Returns the config that `to_json` wrote. Raises ConfigError on any other keys."""
    return _section_from_json((kind,), data, "")


def config_digest(config: Section) -> str:
    """Returns the SHA-256 of the config's canonical JSON."""
    text = json.dumps(to_json(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def diff(old: Section, new: Section) -> list[str]:
    """Returns a line "train.steps: 100 -> 200" for every field that differs."""
    before = {path: repr(value) for path, _, value in walk(old)}
    after = {path: repr(value) for path, _, value in walk(new)}
    return [
        f"{path}: {before.get(path, 'absent')} -> {after.get(path, 'absent')}"
        for path in before | after
        if before.get(path) != after.get(path)
    ]


def diff_json(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str = ""
) -> list[str]:
    """Returns `diff` of two configs as JSON, which may be of different versions.

    A section that only one of them has is one line.
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


def override(config: AnySection, overrides: Mapping[str, str]) -> AnySection:
    """Returns `config` with the text of each dotted key read as its field's type.

    All fields change at once: a section is made, and so checked, with every override
    of it in place. Raises ConfigError.
    """
    known = {path: field.type for path, field, _ in walk(config)}
    for key, text in overrides.items():
        if key not in known:
            raise ConfigError(_unknown_key(key, config))
        # A literal of one choice is the name of the class that the file chose.
        choices = get_args(known[key]) if get_origin(known[key]) is Literal else ()
        if len(choices) == 1 and text != choices[0]:
            raise ConfigError(
                f"{key} cannot be overridden: the config file chose {choices[0]!r}; to "
                f"have {text!r}, choose it there"
            )
    return _rebuild(config, overrides, "")


def alternatives(config: Section) -> Iterator[tuple[str, Section]]:
    """Returns (path, section) of every class that a config file may choose instead."""
    for path, section in sections(config):
        for field in dataclasses.fields(section):
            for each in section_classes(field.type):
                if not isinstance(vars(section)[field.name], each):
                    yield f"{path}{field.name}.", each()


def _unknown_key(key: str, config: Section) -> str:
    """Returns why `key` cannot be set."""
    known = [path for path, _, _ in walk(config)]
    within = [path for path in known if path.startswith(f"{key}.")]
    if within:
        return f"{key!r} is a section; set one of its fields, such as {within[0]!r}"
    for path, section in alternatives(config):
        if key in (other for other, _, _ in walk(section, path)):
            kind = vars(section)["kind"]
            return f"{key!r} is a field of {path}kind={kind}; choose it in the file"
    return f"unknown config key {key!r}{did_you_mean(key, known)}"


def _rebuild(section: Section, overrides: Mapping[str, str], path: str) -> Any:
    values = {}
    for field in dataclasses.fields(section):
        key, value = f"{path}{field.name}", vars(section)[field.name]
        if isinstance(value, Section):
            value = _rebuild(value, overrides, f"{key}.")
        elif key in overrides:
            value = _from_text(overrides[key], field.type)
        values[field.name] = value
    return _make(type(section), values, path)


def _section_from_json(classes: tuple[type[Section], ...], data: Any, path: str) -> Any:
    """Returns the section that `data` holds; `kind` names its class, if of several."""
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path.rstrip('.') or 'config'} expects an object, got {data!r}"
        )
    chosen = classes[0] if len(classes) == 1 else _by_kind(classes, data, path)
    fields = {field.name: field.type for field in dataclasses.fields(chosen)}
    for name in data:
        if name not in fields:
            nearest = did_you_mean(f"{path}{name}", [f"{path}{key}" for key in fields])
            raise ConfigError(f"unknown config key '{path}{name}'{nearest}")
    values = {}
    for name, kind in fields.items():
        if name not in data:
            raise ConfigError(f"config key '{path}{name}' is missing")
        values[name] = data[name]
        if inner := section_classes(kind):
            values[name] = _section_from_json(inner, data[name], f"{path}{name}.")
    return _make(chosen, values, path)


def _by_kind(
    classes: tuple[type[Section], ...], data: dict[str, Any], path: str
) -> type[Section]:
    for each in classes:
        if "kind" in data and vars(each())["kind"] == data["kind"]:
            return each
    kinds = ", ".join(vars(each())["kind"] for each in classes)
    raise ConfigError(f"{path}kind expects one of {kinds}, got {data.get('kind')!r}")


def _make(kind: Any, values: dict[str, Any], path: str) -> Any:
    """Returns the section; a value that it refuses is named by its whole path."""
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{path}{error}") from error


def _from_text(text: str, kind: Any) -> Any:
    """Returns `text` as a value of a field's type.

    Text that is no such value is returned as it is: the section that is made of it
    refuses it, as it refuses every value of another type.
    """
    kind, _ = unwrap(kind)
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is int or kind is float:
        try:
            return kind(text)
        except ValueError:
            return text
    if get_origin(kind) is tuple:
        items = [item.strip(" '\"") for item in text.strip("()[] ").split(",")]
        return tuple(_from_text(item, get_args(kind)[0]) for item in items if item)
    return text
