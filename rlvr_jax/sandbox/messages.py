"""What processes of the sandbox tell one another: plain data, as JSON with a length.

Nothing that is received is ever evaluated: a list stays a list, whatever its sender
has made of its own classes.
"""

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

_MAX_BYTES = 1 << 22  # of one message
_MAX_ITEMS = 100_000  # of an iterator: it may be without end
_LENGTH_BYTES = 4
_COLLECTIONS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class MessageError(Exception):
    """A message that is too long, cut short, or no plain data."""


def send(channel: int, message: Any) -> None:
    """Writes one message to a file descriptor. Raises MessageError, OSError."""
    data = json.dumps(message).encode()
    if len(data) > _MAX_BYTES:
        raise MessageError(f"{len(data)} bytes in one message, over {_MAX_BYTES}")
    data = len(data).to_bytes(_LENGTH_BYTES, "big") + data
    while data:
        data = data[os.write(channel, data) :]


def receive(channel: int) -> Any:
    """Returns the next message of a file descriptor.

    Raises EOFError where there is no other, MessageError, OSError.
    """
    length = int.from_bytes(_read(channel, _LENGTH_BYTES), "big")
    if length > _MAX_BYTES:
        raise MessageError(f"{length} bytes in one message, over {_MAX_BYTES}")
    try:
        return json.loads(_read(channel, length))
    except (ValueError, RecursionError) as error:
        raise MessageError(f"no message ({type(error).__name__})") from error


def _read(channel: int, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = os.read(channel, count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


def encode(value: Any) -> Any:
    """Returns a value of Python as JSON. Raises MessageError on what is no plain data.

    Plain are None, numbers, texts, bytes, and lists, tuples, sets, dicts, ranges and
    iterators of them; a subclass becomes its base class.

    >>> decode(encode({(1, 2): [None, {3.5}]}))
    {(1, 2): [None, {3.5}]}
    """
    if value is None or isinstance(value, bool):
        return value
    for scalar in (int, float, str):
        if isinstance(value, scalar):
            return scalar(value)
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Mapping):
        return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, tuple | set | frozenset):
        name = next(name for name, k in _COLLECTIONS.items() if isinstance(value, k))
        return {name: [encode(item) for item in value]}
    if isinstance(value, Iterable):
        items = list(itertools.islice(value, _MAX_ITEMS + 1))
        if len(items) <= _MAX_ITEMS:
            return {"iterator": [encode(item) for item in items]}
        raise MessageError(f"an iterator of over {_MAX_ITEMS} items")
    raise MessageError(f"{type(value).__name__} is no plain data")


def decode(value: Any) -> Any:
    """Returns what `encode` was given. Raises MessageError on anything else."""
    if isinstance(value, list):
        return [decode(item) for item in value]
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
                return {decode(k): decode(v) for k, v in content}
            case "tuple" | "set" | "frozenset":
                return _COLLECTIONS[name](map(decode, content))
            case "iterator":
                return iter(list(map(decode, content)))
    except (TypeError, ValueError, KeyError) as error:
        raise MessageError(f"no plain data ({type(error).__name__})") from error
    raise MessageError(f"no plain data ({name!r:.40})")
