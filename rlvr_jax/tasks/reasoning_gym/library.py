"""The library reasoning-gym: its generators and the problems they make.

Only this module imports it. The library draws problem i of seed s from the random
stream s + i, so another seed only shifts the problems. Here the seed is always 0, and
only the place selects a problem.
"""

import contextlib
import copy
import dataclasses
import enum
import functools
import importlib.metadata
import random
import sys
import threading
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

import numpy as np

from job_jax.schema import ConfigError, check, did_you_mean
from rlvr_jax.tasks.reasoning_gym.entries import Entry
from rlvr_jax.tasks.reasoning_gym.refused import REFUSED

# These draw all their problems when they are opened. So they are opened again for each
# problem, with the place as the seed, which gives the same random stream.
_OPENED_PER_ITEM = ("acre", "gsm_symbolic", "list_functions", "word_ladder")
_OUR_OPTIONS = ("seed", "size")  # settings of the library that this task sets
_SIZE = 2**31
_MAX_CACHED = 2048  # items; the verifier needs recent problems again

# Several threads read problems, and generators share state (word tables, the global
# random streams).
_making = threading.RLock()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """One problem of the library: question, answer, and the library's own entry.

    `gold` is "" if the library states no answer but only checks one.
    """

    question: str
    gold: str
    entry: Mapping[str, Any]


@functools.cache
def _library() -> Any:
    """Returns the library's table of generators. Raises ConfigError without it."""
    try:
        from reasoning_gym import factory  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "task.source=reasoning_gym needs the extra gym: pip install "
            f"'rlvr_jax[gym]' ({error})"
        ) from error
    return factory


def library_version() -> str:
    """Returns the library's version; other versions may make other problems."""
    return importlib.metadata.version("reasoning-gym")


def generator_names() -> list[str]:
    """Returns the names of all generators, refused ones too."""
    return sorted(_library().DATASETS)


def expand_all(entry: Entry) -> tuple[Entry, ...]:
    """Returns the entry, or, for the name `all`, one of each generator that works."""
    if entry.name != "all":
        return (entry,)
    works = [name for name in generator_names() if name not in REFUSED]
    return tuple(dataclasses.replace(entry, name=name) for name in works)


def num_levels(name: str) -> int:
    """Returns how many levels the generator's curriculum has, 0 without one."""
    if name not in _library().CURRICULA:
        return 0
    attributes = _library().create_curriculum(name).attributes.values()
    return max((len(attribute.levels) for attribute in attributes), default=0)


def describe_options(name: str) -> str:
    """Returns a line with the generator's levels, and its options with defaults."""
    _, config_class = _library().DATASETS[name]
    config = config_class()
    words = [
        f"{field.name}={_write_value(vars(config)[field.name])}"
        for field in dataclasses.fields(config_class)
        if field.name not in _OUR_OPTIONS
    ]
    count = num_levels(name)
    levels = [f"levels=0..{count - 1}"] if count else []
    return " ".join([name, *levels, *words])


def check_entry(entry: Entry) -> None:
    """Raises ConfigError for a name, level or option that the library does not have."""
    known = [name for name in generator_names() if name not in REFUSED]
    if reason := REFUSED.get(entry.name):
        raise ConfigError(f"task.generators: {entry.name} is refused: {reason}")
    check(
        entry.name in known,
        f"task.generators: reasoning-gym has no generator {entry.name!r}"
        f"{did_you_mean(entry.name, known)}",
    )
    count = num_levels(entry.name)
    check(
        max(entry.levels, default=-1) < count,
        f"task.generators: '{entry}' names levels that {entry.name} does not have; "
        + (f"use 0..{count - 1}" if count else "it has none, so give options"),
    )
    _parse_options(entry)


@functools.lru_cache(maxsize=_MAX_CACHED)
def make_item(entry: Entry, place: int) -> Item:
    """Returns the problem at a place. Passes on errors of the generator.

    The problem depends only on the entry and the place. Some generators draw from the
    global random streams, so these are seeded with the place and restored afterwards.
    Some print dots, which do not belong into a command's output.
    """
    with _making, _global_streams(place), contextlib.redirect_stdout(sys.stderr):
        if entry.name in _OPENED_PER_ITEM:
            item = _open(entry, seed=place, size=1)[0]
        else:
            item = open_dataset(entry)[place]
    answer = item["answer"]
    return Item(
        question=item["question"],
        gold="" if answer is None else str(answer),
        entry=item,
    )


def score_answer(entry: Entry, item: Item, answer: str) -> float:
    """Returns the library's score of an answer, 1 if it is correct.

    The scorer gets a copy of the problem, because some scorers modify it.
    """
    with _making:
        dataset = open_dataset(entry)
    return float(dataset.score_answer(answer, copy.deepcopy(item.entry)))


@functools.lru_cache(maxsize=256)
def open_dataset(entry: Entry) -> Any:
    """Returns the library's generator with the entry's level and options.

    Raises ConfigError if it refuses these settings.
    """
    return _open(entry, seed=0, size=1 if entry.name in _OPENED_PER_ITEM else _SIZE)


def _open(entry: Entry, *, seed: int, size: int) -> Any:
    dataset_class, config_class = _library().DATASETS[entry.name]
    options = _parse_options(entry)
    try:
        if entry.levels:
            curriculum = _library().create_curriculum(entry.name)
            curriculum.set_global_level(entry.levels[0])
            config = curriculum.generate_configuration({"seed": seed, "size": size})
            config = dataclasses.replace(config, **options)
        else:
            config = config_class(seed=seed, size=size, **options)
        if hasattr(config, "validate"):
            config.validate()
        return dataset_class(config=config)
    except Exception as error:  # mostly assertions
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"task.generators: '{entry}': {reason}") from error


@contextlib.contextmanager
def _global_streams(seed: int) -> Iterator[None]:
    """Seeds the random streams of Python and NumPy, and restores them at the end."""
    ours, numpys = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)


def _write_value(value: object) -> str:
    """Returns an option's value as text for an entry."""
    if isinstance(value, list | tuple):
        return ";".join(map(_write_value, value))
    if isinstance(value, enum.Enum):
        value = value.value
    return (
        str(value).lower()
        if value is None or value is True or value is False
        else str(value)
    )


def _parse_options(entry: Entry) -> dict[str, Any]:
    """Returns the values of an entry's options. Raises ConfigError."""
    _, config_class = _library().DATASETS[entry.name]
    kinds = typing.get_type_hints(config_class)
    fields = {field.name for field in dataclasses.fields(config_class)}
    names = sorted(fields - set(_OUR_OPTIONS))
    values = {}
    for key, text in entry.options:
        check(
            key not in _OUR_OPTIONS,
            f"task.generators: '{entry}' sets {key}; remove it, because the config's "
            "seed and task.num_problems choose the problems",
        )
        check(
            key in names,
            f"task.generators: {entry.name} has no option {key!r}"
            f"{did_you_mean(key, names) or '; it has none'}",
        )
        values[key] = _parse_value(entry, key, text, kinds[key])
    return values


def _parse_value(entry: Entry, key: str, text: str, kind: object) -> Any:
    """Returns the text as a value of the library's type. Raises ConfigError."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [each for each in args if each is not type(None)]
        is_none = text == "none" and len(inner) < len(args)
        return None if is_none else _parse_value(entry, key, text, inner[0])
    if kind is tuple:
        return tuple(text.split(";"))
    if origin in (list, tuple, Sequence):
        values = [_parse_value(entry, key, word, args[0]) for word in text.split(";")]
        return values if origin is list else tuple(values)
    if kind is str:
        return text
    readers: dict[Any, Any] = {
        bool: {"true": True, "false": False}.__getitem__,
        int: int,
        float: float,
    }
    read = readers.get(kind)
    if origin is typing.Literal:
        read = {str(value): value for value in args}.__getitem__
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        read = {str(member.value): member for member in kind}.__getitem__
    if read is None:
        raise ConfigError(
            f"task.generators: {entry.name} takes no text for {key}; remove it to use "
            "the default"
        )
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"task.generators: {entry.name} {key}={text}; {_requirement(kind)}"
        ) from error


def _requirement(kind: Any) -> str:
    if get_origin(kind) is typing.Literal:
        return f"it must be one of {', '.join(map(str, get_args(kind)))}"
    if issubclass(kind, enum.Enum):
        return f"it must be one of {', '.join(str(each.value) for each in kind)}"
    return {
        bool: "it must be true or false",
        int: "it must be a whole number",
        float: "it must be a number",
    }[kind]
