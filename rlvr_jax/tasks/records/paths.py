"""Finds values in a record by dotted paths, such as `reward_model.ground_truth`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

ABSENT = object()
_INDEX = re.compile("-?[0-9]{1,9}")


def find_value(record: object, path: str) -> Any:
    """Returns the value at a path, `ABSENT` if the record lacks it.

    A path is a field's name, or names joined by dots; an item of a list is its number,
    -1 for the last: `prompt.-1.content`. A field whose own name has dots comes first.
    """
    if isinstance(record, Mapping) and path in record:
        return record[path]
    value = record
    for step in path.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and _has_item(value, step):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def list_paths(record: Mapping[str, object]) -> Iterator[str]:
    """Yields the paths of a record's values; an object has only its values' paths."""
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{name}.{path}" for path in list_paths(value))
        else:
            yield str(name)


def _has_item(values: list[Any], step: str) -> bool:
    return bool(_INDEX.fullmatch(step)) and -len(values) <= int(step) < len(values)
