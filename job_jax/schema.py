"""Config sections: frozen, typed, bounded, and checked when they are constructed.

A package's `config` declares its sections and every default; this module defines what a
section is. A field's annotation holds every check of its value alone: a type, and for
some fields a constraint (`PositiveInt`). Checks of several fields together are in the
section's own `__post_init__`.
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
)


class ConfigError(ValueError):
    """A configuration that cannot run. The message names the value and the fix.

    It begins with the field's name within its section ("learning_rate=-1.0; ..."), so a
    caller who knows the section's path ("train.optimizer.") can put it in front.
    """


@dataclasses.dataclass(frozen=True)
class Constraint:
    """Which values a field accepts; `requirement` completes "it must ..."."""

    requirement: str
    accepts: Callable[[Any], bool]


PositiveInt = Annotated[int, Constraint("be at least 1", lambda n: n >= 1)]
NonNegativeInt = Annotated[int, Constraint("be at least 0", lambda n: n >= 0)]
AtLeastTwo = Annotated[int, Constraint("be at least 2", lambda n: n >= 2)]
PositiveFloat = Annotated[float, Constraint("be positive", lambda x: x > 0)]
NonNegativeFloat = Annotated[float, Constraint("be at least 0", lambda x: x >= 0)]
UnitInterval = Annotated[float, Constraint("lie within [0, 1]", lambda x: 0 <= x <= 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigSection:
    """Base of every config dataclass.

    Values are converted to the type of their field, so that equal configs have equal
    JSON: a list becomes a tuple, and a whole number a float. A word in `shorthands` can
    replace a section and sets the given fields: `Config(model="pretrained")`.
    `earlier_values` has the fields whose default has changed. If a config.json lacks
    one, it means this value, not today's default. `other_names` has names that other
    programs use, each with the path of our field in the section, for hints.
    """

    __slots__ = ("_stated",)

    shorthands: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    earlier_values: ClassVar[Mapping[str, Any]] = {}
    other_names: ClassVar[Mapping[str, str]] = {}

    def __new__(cls, **values: object) -> Self:
        """Raises ConfigError on a key that is not a field; it names the nearest one."""
        names = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in names:
                called = fields_called(key, _iter_declared(cls))
                hint = suggest(called) or did_you_mean(key, names)
                raise ConfigError(f"{cls.__name__} has no field {key!r}{hint}")
        section = super().__new__(cls)
        object.__setattr__(section, "_stated", frozenset(values))
        return section

    def __getstate__(self) -> tuple[dict[str, Any], frozenset[str]]:
        """Returns the state from which a copy of the section is made."""
        return vars(self), self.stated

    def __setstate__(self, state: tuple[dict[str, Any], frozenset[str]]) -> None:
        """Fills the section from that state."""
        vars(self).update(state[0])
        object.__setattr__(self, "_stated", state[1])

    @property
    def stated(self) -> frozenset[str]:
        """Returns the fields that were given when the section was made.

        The others have their defaults. After `dataclasses.replace`, all count as given.
        """
        return object.__getattribute__(self, "_stated")

    def __post_init__(self) -> None:
        """Raises ConfigError on values of the wrong type or out of bounds."""
        for field in dataclasses.fields(self):
            value = check_value(field.name, vars(self)[field.name], field.type)
            object.__setattr__(self, field.name, value)

    def tags(self) -> dict[str, str]:
        """Returns JSON keys besides the fields, such as the chosen class's name."""
        return {}


def check_value(name: str, value: object, kind: object) -> Any:
    """Returns the value, converted to the type in the annotation `kind`.

    Raises ConfigError, which calls the field by `name`, on a value of the wrong type or
    out of bounds.
    """
    if value is None and _allows_none(kind):
        return None
    kind, constraint = split_annotation(kind)
    value = _canonicalize(value, kind)
    if not _is_instance(value, kind):
        raise ConfigError(f"{name} expects {type_with_article(kind)}, got {value!r}")
    if constraint and not constraint.accepts(value):
        raise ConfigError(f"{name}={value!r}; it must {constraint.requirement}")
    return value


def check(condition: bool, message: str) -> None:
    """Raises ConfigError with the message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def split_annotation(kind: object) -> tuple[Any, Constraint | None]:
    """Returns a field's type without None and constraint, and the constraint or None.

    >>> split_annotation(PositiveInt | None)[0]
    <class 'int'>
    """
    if _allows_none(kind):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Annotated:
        base, constraint = get_args(kind)
        return base, constraint
    return kind, None


def _allows_none(kind: object) -> bool:
    return get_origin(kind) in (Union, UnionType) and NoneType in get_args(kind)


def section_class(kind: object) -> type[ConfigSection] | None:
    """Returns the type itself if it is a section class, None for a plain value."""
    return kind if isinstance(kind, type) and issubclass(kind, ConfigSection) else None


def has_default(field: "dataclasses.Field[Any]") -> bool:
    """Returns whether a section can be made without a value for the field."""
    return (field.default, field.default_factory) != (dataclasses.MISSING,) * 2


def type_name(kind: Any) -> str:
    """Returns the name of a field's type for messages and --help."""
    if get_origin(kind) is Literal:
        choices = ", ".join(map(str, get_args(kind)))
        return f"one of {choices}" if len(get_args(kind)) > 1 else choices
    if get_origin(kind) is tuple:
        return f"tuple of {type_name(get_args(kind)[0])}"
    return {str: "string", float: "finite float"}.get(kind, kind.__name__)


def type_with_article(kind: object) -> str:
    """Returns `type_name(kind)` with the article that a sentence needs."""
    name = type_name(kind)
    if get_origin(kind) is Literal:
        return name
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Returns "; did you mean ...?" with the nearest of `words`."""
    nearest = difflib.get_close_matches(word, list(words), n=1, cutoff=0.0)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def read_other_names(**names: str) -> dict[str, str]:
    """Returns `other_names` from each field's other names, with spaces between them.

    >>> read_other_names(learning_rate="lr rate")
    {'lr': 'learning_rate', 'rate': 'learning_rate'}
    """
    return {name: field for field, text in names.items() for name in text.split()}


def suggest(words: Iterable[str]) -> str:
    """Returns "; did you mean 'a', 'b' or 'c'?", "" without words."""
    *others, last = [*map(repr, words)] or [""]
    either = f"{', '.join(others)} or {last}" if others else last
    return f"; did you mean {either}?" if last else ""


def iter_sections(
    section: ConfigSection, path: str = ""
) -> Iterator[tuple[str, ConfigSection]]:
    """Returns (path with its last dot, section) of the section and all within it."""
    yield path, section
    for name, value in vars(section).items():
        if isinstance(value, ConfigSection):
            yield from iter_sections(value, f"{path}{name}.")


def iter_fields(
    section: ConfigSection, path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Returns (dotted path, type, value) of every field that is not a section.

    The class names of open choices are included.
    """
    for prefix, owner in iter_sections(section, path):
        for name, value in owner.tags().items():
            yield f"{prefix}{name}", str, value
        for field in dataclasses.fields(owner):
            value = vars(owner)[field.name]
            if not isinstance(value, ConfigSection):
                yield f"{prefix}{field.name}", field.type, value


def fields_called(
    other_name: str,
    sections: Iterable[tuple[str, ConfigSection | type[ConfigSection]]],
) -> Iterator[str]:
    """Returns the fields that other programs call by this name.

    `sections` are (path with its last dot, section or its class).
    """
    for path, section in sections:
        if other_name in section.other_names:
            yield f"{path}{section.other_names[other_name]}"


def _iter_declared(
    kind: type[ConfigSection], path: str = ""
) -> Iterator[tuple[str, type[ConfigSection]]]:
    """Returns (path with its last dot, class) of a class and the sections within."""
    yield path, kind
    for field in dataclasses.fields(kind):
        if inner := section_class(field.type):
            yield from _iter_declared(inner, f"{path}{field.name}.")


def _canonicalize(value: object, kind: object) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_canonicalize(item, get_args(kind)[0]) for item in value)
    if isinstance(value, str) and (section := section_class(kind)):
        return (
            section(**section.shorthands[value])
            if value in section.shorthands
            else value
        )
    return value


def _is_instance(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return isinstance(value, tuple) and all(
            _is_instance(item, element) for item in value
        )
    if kind is float:
        return isinstance(value, float) and math.isfinite(value)
    if kind is int:  # bool is a subclass of int, but True is not a number here
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)
