"""The header of a GGUF file: its settings, and where each tensor's bytes are.

The file is memory-mapped and tensors are not read here. Everything is checked against
the size of the file, so a download that stopped halfway is reported as one.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import collections
import dataclasses
import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from job_jax.schema import ConfigError
from rlvr_jax.models.gguf.quantization import block_size, kind_name

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)  # version 1 counted in 32 bits and was replaced within weeks
_ALIGNMENT = 32  # bytes, unless general.alignment says otherwise
_MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9  # value types that are not a fixed number of bytes
_SCALARS = {
    **{0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4"},
    **{6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"},
}


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """One tensor of the file: [rows, columns] for a matrix, [n] for a vector.

    `kind` is ggml's name of the quantization, such as Q4_1. The tensor is `nbytes` long
    and starts at byte `start` of the file.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class GGUFFile:
    """A parsed GGUF file. `metadata` holds its settings by their full key."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    data: mmap.mmap

    def stored_bytes(self, tensor: StoredTensor) -> np.ndarray:
        """Returns the bytes of a tensor [rows, bytes of a row], still in the file."""
        flat = np.frombuffer(self.data, np.uint8, tensor.nbytes, tensor.start)
        rows = math.prod(tensor.shape[:-1])
        return flat.reshape(rows, tensor.nbytes // rows)


def read_gguf(path: Path) -> GGUFFile:
    """Returns the header of a GGUF file, memory-mapped.

    Raises ConfigError if the file is missing, is not GGUF, is cut off, is one of
    several parts, or has an unsupported version.
    """
    if not path.is_file():
        raise ConfigError(f"no file {path}; give a GGUF file")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ConfigError(f"{path} is not a GGUF file: it does not begin with GGUF")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header = _Header(path, data)
    tensor_count, setting_count = header.read_counts()
    metadata = header.read_metadata(setting_count)
    _check_single_model(path, metadata)
    entries = header.read_tensor_table(tensor_count)
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    tensors = _place_tensors(path, entries, header.position, alignment)
    _check_complete(path, tensors, len(data))
    return GGUFFile(path, metadata, {t.name: t for t in tensors}, data)


class _Entry(NamedTuple):
    """A tensor in the header's table; `offset` counts from the start of the data."""

    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int


class _Header:
    """Reads values one after another from the beginning of the file."""

    def __init__(self, path: Path, data: mmap.mmap):
        self._path, self._data = path, data
        self.position = len(_MAGIC)
        self._key = ""  # the setting or tensor being read, for messages

    def read_counts(self) -> tuple[int, int]:
        """Returns how many tensors and settings follow. Raises ConfigError."""
        (version,) = self._unpack("<I")
        if version not in _VERSIONS:
            order = " in big-endian byte order" if version % 65536 == 0 else ""
            raise ConfigError(
                f"{self._path}: GGUF version {version}{order} is not supported; "
                f"versions {' and '.join(map(str, _VERSIONS))}, little-endian, are"
            )
        tensor_count, setting_count = self._unpack("<QQ")
        return tensor_count, setting_count

    def read_metadata(self, count: int) -> dict[str, Any]:
        """Returns the settings by key."""
        metadata: dict[str, Any] = {}
        for _ in range(count):
            self._key = self._read_string()
            (kind,) = self._unpack("<I")
            metadata[self._key] = self._read_value(kind)
        return metadata

    def read_tensor_table(self, count: int) -> list[_Entry]:
        """Returns the entry of each tensor. Raises ConfigError on an unknown kind."""
        entries = []
        for _ in range(count):
            name = self._key = self._read_string()
            (dimensions,) = self._unpack("<I")
            if not 1 <= dimensions <= _MAX_DIMENSIONS:
                raise ConfigError(
                    f"{self._path} is damaged: {name!r} has {dimensions} dimensions"
                )
            # ggml names the fastest dimension first, NumPy last.
            shape = self._unpack(f"<{dimensions}Q")[::-1]
            number, offset = self._unpack("<IQ")
            kind = kind_name(number, where=f"{self._path}: {name}")
            entries.append(_Entry(name, kind, shape, offset))
        return entries

    def _read_value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._read_string()
        if kind == _ARRAY:
            element, count = self._unpack("<IQ")
            if element == _STRING:
                return [self._read_string() for _ in range(count)]
            return self._read_numbers(element, count)
        return self._read_numbers(kind, 1)[0]

    def _read_numbers(self, kind: int, count: int) -> list[Any]:
        if kind not in _SCALARS:
            raise ConfigError(
                f"{self._path}: {self._key} has values of type {kind}, which is not "
                "supported"
            )
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype).tolist()

    def _read_string(self) -> str:
        (length,) = self._unpack("<Q")
        text = self._take(length)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise ConfigError(
                f"{self._path} is damaged at byte {self.position - length}: "
                f"{text[:20]!r} is not UTF-8; download it again"
            ) from None

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            self._raise_cut_off()
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def _raise_cut_off(self) -> NoReturn:
        after = f" at {self._key!r}" if self._key else ""
        raise ConfigError(
            f"{self._path} is cut off: it ends after {len(self._data):,} bytes, within "
            f"its header{after}; download it again"
        )


def _check_single_model(path: Path, metadata: Mapping[str, Any]) -> None:
    """Raises ConfigError if the file is a part of a model, or something else."""
    parts = metadata.get("split.count", 1)
    if parts > 1:
        raise ConfigError(
            f"{path} is part {metadata.get('split.no', 0) + 1} of {parts}; join them "
            "first: llama.cpp's `llama-gguf-split --merge FIRST_PART ONE_FILE`"
        )
    kind = metadata.get("general.type", "model")
    if kind != "model":
        raise ConfigError(f"{path}: general.type={kind!r} is not a language model")


def _place_tensors(
    path: Path, entries: list[_Entry], header_end: int, alignment: int
) -> list[StoredTensor]:
    """Returns the tensors with their place in the file."""
    data_start = -(-header_end // alignment) * alignment
    tensors = []
    for entry in entries:
        values, size = block_size(entry.kind)
        if entry.shape[-1] % values:
            raise ConfigError(
                f"{path} is damaged: {entry.name!r} has rows of {entry.shape[-1]} "
                f"values, and {entry.kind} stores blocks of {values}"
            )
        nbytes = math.prod(entry.shape) // values * size
        start = data_start + entry.offset
        tensors.append(StoredTensor(entry.name, entry.kind, entry.shape, start, nbytes))
    return tensors


def _check_complete(path: Path, tensors: list[StoredTensor], size: int) -> None:
    """Raises ConfigError if a tensor occurs twice, or ends beyond the file's end."""
    counts = collections.Counter(tensor.name for tensor in tensors)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ConfigError(f"{path} is damaged: it has {twice[0]!r} twice")
    cut = [t for t in tensors if t.start + t.nbytes > size]
    if cut:
        missing = max(t.start + t.nbytes for t in cut) - size
        raise ConfigError(
            f"{path} is cut off: {missing:,} of its {size + missing:,} bytes are "
            f"missing, from tensor {min(cut, key=_start).name!r} on; download it again"
        )


def _start(tensor: StoredTensor) -> int:
    return tensor.start
