"""Messages between the sandbox's processes: plain data, as JSON with a length.

A received message is never evaluated: a list is a list, even if the sender has changed
its classes. Objects of other classes stay in their process; only a number is sent.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_MAX_BYTES = 1 << 22  # in one message
_MAX_ITEMS = 100_000  # in an iterator, which may be infinite
_LENGTH_BYTES = 4
_COLLECTIONS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_TYPES: dict[str, type] = _COLLECTIONS | {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, list, dict, range)
}


class MessageError(Exception):
    """A message that is too long, cut off, or not plain data."""


def send(channel: int, message: object) -> None:
    """Writes one message to a file descriptor. Raises MessageError or OSError."""
    data = json.dumps(message).encode()
    if len(data) > _MAX_BYTES:
        raise MessageError(f"{len(data)} bytes in one message, over {_MAX_BYTES}")
    data = len(data).to_bytes(_LENGTH_BYTES, "big") + data
    while data:
        data = data[os.write(channel, data) :]


def receive(channel: int) -> Any:
    """Returns the next message from a file descriptor.

    Raises EOFError at the end of the stream, MessageError or OSError.
    """
    length = int.from_bytes(_read(channel, _LENGTH_BYTES), "big")
    if length > _MAX_BYTES:
        raise MessageError(f"{length} bytes in one message, over {_MAX_BYTES}")
    try:
        return json.loads(_read(channel, length))
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not a message ({type(error).__name__})") from error


def _read(channel: int, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = os.read(channel, count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


def _refuse_to_keep(value: object) -> int:
    raise MessageError(f"{type(value).__name__} is not plain data")


def _refuse_to_find(number: int) -> Any:
    raise MessageError(f"not plain data ('object' {number!r:.20})")


def encode(value: object, keep: Callable[[Any], int] = _refuse_to_keep) -> Any:
    """Returns a Python value as JSON. Raises MessageError if it is not plain data.

    Plain data are None, numbers, texts and bytes; lists, tuples, sets, dicts, ranges
    and iterators of plain data; and the types of all these. A subclass becomes its base
    class. Any other object is sent as the number that `keep` returns for it.

    >>> decode(encode({(1, 2): [None, {3.5}]}))
    {(1, 2): [None, {3.5}]}
    """
    if value is None or isinstance(value, bool):
        return value
    for scalar in (int, float, str):
        if isinstance(value, scalar):
            return scalar(value)
    if isinstance(value, list):
        return [encode(item, keep) for item in value]
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, type) and value in _TYPES.values():
        return {"type": value.__name__}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Mapping):
        return {"dict": [[encode(k, keep), encode(v, keep)] for k, v in value.items()]}
    if isinstance(value, tuple | set | frozenset):
        name = next(name for name, k in _COLLECTIONS.items() if isinstance(value, k))
        return {name: [encode(item, keep) for item in value]}
    if isinstance(value, Iterable):
        items = list(itertools.islice(value, _MAX_ITEMS + 1))
        if len(items) <= _MAX_ITEMS:
            return {"iterator": [encode(item, keep) for item in items]}
        raise MessageError(f"an iterator with over {_MAX_ITEMS} items")
    return {"object": keep(value)}


def decode(value: object, find: Callable[[int], Any] = _refuse_to_find) -> Any:
    """Returns the value that `encode` encoded; `find` returns objects by number.

    Raises MessageError for anything else.
    """
    if isinstance(value, list):
        return [decode(item, find) for item in value]
    if not isinstance(value, dict):
        return value
    try:
        ((name, content),) = value.items()
        match name:
            case "complex":
                return complex(*content)
            case "bytes":
                return bytes.fromhex(content)
            case "range":
                return range(*content)
            case "dict":
                return {decode(k, find): decode(v, find) for k, v in content}
            case "tuple" | "set" | "frozenset":
                return _COLLECTIONS[name](decode(item, find) for item in content)
            case "iterator":
                return iter([decode(item, find) for item in content])
            case "type":
                return _TYPES[content]
            case "object":
                return find(content)
    except (TypeError, ValueError, LookupError) as error:
        raise MessageError(f"not plain data ({type(error).__name__})") from error
    raise MessageError(f"not plain data ({name!r:.40})")
