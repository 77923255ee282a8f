"""Hints in refusals: which field a wrong key most likely means.

A key is looked for under the names that other programs use (`other_names` of a
section), then among the fields of classes that could be chosen, then by its spelling.
"""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from job_jax.registry import OpenSection
from job_jax.schema import (
    ConfigSection,
    did_you_mean,
    fields_called,
    iter_fields,
    iter_sections,
    suggest,
)

_MAX_SUGGESTED = 3  # fields; a shared name such as batch_size has several
_TAG_NAMES = ("name", "kind", "type")  # which others call the choice of a class


def iter_alternatives(config: ConfigSection) -> Iterator[tuple[str, ConfigSection]]:
    """Returns (path, section) of every class that a config file may choose instead."""
    for path, section in iter_sections(config):
        for field in dataclasses.fields(section):
            held = vars(section)[field.name]
            if isinstance(held, OpenSection):
                for other in _other_classes(field.type, held):
                    yield f"{path}{field.name}.", other()


def section_shorthands(config: ConfigSection) -> dict[str, list[str]]:
    """Returns the words that can replace a section, by its path."""
    sections = iter_sections(config)
    return {path.rstrip("."): list(section.shorthands) for path, section in sections}


def explain_key(key: str, text: str, config: ConfigSection) -> str:
    """Returns why `key` cannot be set to `text`."""
    known = [path for path, _, _ in iter_fields(config)]
    within = [path for path in known if path.startswith(f"{key}.")]
    if within:
        words = [f", or write {key}={word}" for word in section_shorthands(config)[key]]
        return (
            f"{key}={text}: {key!r} is a section; set one of its fields, such as "
            f"{within[0]!r}"
            f"{''.join(words)}"
        )
    for path, section in iter_alternatives(config):
        if key in (other for other, _, _ in iter_fields(section, path)):
            tag, name = next(iter(section.tags().items()))
            return f"{key!r} is a field of {path}{tag}={name}; set that as well"
    hint = suggest(find_fields(key, config)) or _near_keys(key, known)
    return f"unknown config key {key!r}{hint}"


def explain_flag(name: str, flags: Sequence[str], config: ConfigSection) -> str:
    """Returns why there is no flag --`name`, and which flag or field it may mean."""
    is_near = difflib.get_close_matches(name, flags)
    fields = [] if is_near else find_fields(name, config)
    hint = suggest(f"--config.{path}" for path in fields)
    known = [f"--{flag}" for flag in flags]
    known += [f"--config.{path}" for path, _, _ in iter_fields(config)]
    return f"unknown flag '--{name}'{hint or did_you_mean(f'--{name}', known)}"


def find_fields(key: str, config: ConfigSection) -> list[str]:
    """Returns the fields that `key` calls by a name of other programs, or by their own.

    They are in the innermost section of `key` that has any: eval.temp is
    eval.sampling.temperature. Their own names count unless that leaves all sections of
    `key`: verifier.seed is not seed.
    """
    *parents, name = key.lower().replace("-", "_").split(".")
    for depth in range(len(parents), -1, -1):
        prefix = "".join(f"{parent}." for parent in parents[:depth])
        fields = _matching_fields(
            name, config, prefix, with_own=depth > 0 or not parents
        )
        if found := [path for path in fields if path.startswith(prefix)]:
            return found[:_MAX_SUGGESTED]
    others = (
        place
        for root, other in iter_alternatives(config)
        for place in iter_sections(other, root)
    )
    return [*fields_called(name, others)][:1]


def _matching_fields(
    name: str, config: ConfigSection, prefix: str, *, with_own: bool
) -> Iterator[str]:
    for path, section in iter_sections(config):
        if called := [*fields_called(name, [(path, section)])]:
            yield from called
        elif with_own and name in (field.name for field in dataclasses.fields(section)):
            yield f"{path}{name}"
        elif isinstance(section, OpenSection) and path == prefix and name in _TAG_NAMES:
            yield f"{path}{section.tag}"


def _other_classes(declared: Any, held: OpenSection) -> Iterator[type[OpenSection]]:
    """Returns our classes that could be chosen instead of `held`."""
    classes = [declared.choose(name) for name in declared.registry.names]
    return (each for each in classes if type(held) is not each)


def _near_keys(key: str, known: Sequence[str]) -> str:
    """Returns the nearest known key, or all names beside `key` if none is near."""
    section, _, name = key.rpartition(".")
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
    if difflib.get_close_matches(name, [nearest.rpartition(".")[2]]):
        return did_you_mean(key, known)
    prefix = f"{section}." if section else ""
    tails = (path.removeprefix(prefix) for path in known if path.startswith(prefix))
    beside = dict.fromkeys(tail.split(".")[0] for tail in tails)
    if not beside:
        return did_you_mean(key, known)
    owner = repr(section) if section else "the config"
    return f"; {owner} has {', '.join(beside)}"
