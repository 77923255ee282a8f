"""The fields of a record that the recipe does not read itself."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from job_jax.schema import ConfigError

_SCALARS = (str, bool, int, float, type(None))


class Fields(Mapping[str, Any]):
    """An immutable mapping from field names to plain JSON values.

    Lists and objects are copied when they are read, so no reader can change a problem
    for the next one. `record` has further values, for adapters of functions that expect
    a whole record: the fields that the recipe reads (the answer, the level), and under
    "prompt" the record's prompt before any template. Equality, hash and iteration
    ignore them. Raises ConfigError if a value is not plain JSON.

    Example:
        >>> fields = Fields({"low": 3, "tags": ["a"]})
        >>> fields["tags"].append("b")
        >>> dict(fields)
        {'low': 3, 'tags': ['a']}
    """

    __slots__ = ("_read", "_values")

    def __init__(
        self, values: Mapping[str, object] = {}, *, read: Mapping[str, object] = {}
    ):
        self._values = dict(values)
        self._read = dict(read)
        for name, value in self._values.items():
            if fault := describe_json_fault(value):
                raise ConfigError(
                    f"field {name!r} {fault}; problem.fields holds plain JSON values"
                )
        self._values = {name: _copy(value) for name, value in self._values.items()}

    def __getitem__(self, name: str) -> Any:
        """Returns a field's value; lists and objects are copies."""
        return _copy(self._values[name])

    def __iter__(self) -> Iterator[str]:
        """Returns an iterator over the names, in the record's order."""
        return iter(self._values)

    def __len__(self) -> int:
        """Returns the number of fields."""
        return len(self._values)

    def __hash__(self) -> int:
        """Returns a hash of the names, which equal mappings share."""
        return hash(frozenset(self._values))

    def __repr__(self) -> str:
        """Returns the fields as Python would write them."""
        return f"Fields({self._values!r})"

    @property
    def record(self) -> dict[str, Any]:
        """Returns a copy of the record: these fields, and those the recipe reads."""
        return {name: _copy(v) for name, v in {**self._read, **self._values}.items()}


def describe_json_fault(value: object) -> str:
    """Returns why a value is not plain JSON that UTF-8 can write, "" if it is.

    >>> describe_json_fault({"a": [1, None, "b"]})
    ''
    >>> describe_json_fault({1, 2})
    'is {1, 2} (a set)'
    """
    if isinstance(value, dict):
        keys = [key for key in value if not isinstance(key, str)]
        if keys:
            return f"has the key {keys[0]!r:.40}, which is not a text"
        return next(
            filter(None, map(describe_json_fault, [*value, *value.values()])), ""
        )
    if isinstance(value, list):
        return next(filter(None, map(describe_json_fault, value)), "")
    if not isinstance(value, _SCALARS):
        return f"is {value!r:.40} (a {type(value).__name__})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which JSON cannot hold"
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        return f"is {value!r:.40}, which has half a character"
    return ""


def _copy(value: object) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


NO_FIELDS = Fields()
