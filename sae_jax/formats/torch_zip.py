"""Reads tensors from a torch.save file, without torch and without running its pickle.

The file is a zip archive: `NAME/data.pkl`, a pickle in which each tensor names its
storage, and `NAME/data/KEY`, the storages as raw bytes. Unpickling runs any function
that a pickle names. So ours accepts only a few names, which do no more than record
their arguments; it refuses any other name before anything is called.

We read only the bytes that the tensors need, and never more than the file's length.
torch compresses nothing, so we refuse compressed entries, because their stated size
cannot be trusted. We also refuse entries that together are larger than the file.
"""

import collections
import io
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from sae_jax.formats.record import FormatError

_STORAGES: dict[str, Any] = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


class _Storage(NamedTuple):
    key: str
    dtype: Any
    numel: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Returns the named tensors of a saved state dict.

    Raises FormatError if the file is not a torch.save archive, holds objects other than
    tensors, or describes a tensor that reaches outside its storage.
    """
    if not zipfile.is_zipfile(path):
        raise FormatError(
            f"{path} is not a zip archive of torch.save; save it with torch >= 1.6"
        )
    with zipfile.ZipFile(path) as archive:
        pickles = [n for n in archive.namelist() if n.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise FormatError(f"{path} is a zip archive, but not from torch.save")
        root = pickles[0].removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in archive.namelist() and _read(archive, order, path) != b"little":
            raise FormatError(f"{path} was written on a big-endian machine")
        state = _Unpickler(_read(archive, pickles[0], path), path).read()
        if not isinstance(state, dict):
            raise FormatError(f"{path} holds no state dict; save model.state_dict()")
        # `dict.items`, because the pickle may have set the object's own `items`.
        tensors = {
            str(name): value
            for name, value in dict.items(state)
            if isinstance(value, _Tensor)
        }
        storages = _read_storages(archive, f"{root}data/", tensors, path)
    return {
        name: _view(tensor, storages[tensor.storage.key])
        for name, tensor in tensors.items()
    }


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data))
        self._path = path

    def read(self) -> Any:
        try:
            return self.load()
        except FormatError:
            raise
        except Exception as error:  # a broken pickle raises nearly anything
            raise FormatError(
                f"{self._path}: its pickle is damaged: {error}"
            ) from error

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        }
        if (module, name) in allowed:
            return allowed[module, name]
        if module == "torch" and name in _STORAGES:
            return name  # a string, which the pickle can pass on but not call
        raise FormatError(
            f"{self._path} holds a {module}.{name}; only tensors are read, so save "
            "model.state_dict() instead"
        )

    def persistent_load(self, pid: object) -> _Storage:
        match pid:
            case ("storage", str(kind), str(key), str(), int(numel)):
                return _Storage(key=key, dtype=_STORAGES[kind], numel=numel)
        raise FormatError(f"{self._path}: not a storage: {pid!r}")


def _rebuild_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *_: Any
) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(tensor: object, *_: object) -> Any:
    return tensor


def _read_storages(
    archive: zipfile.ZipFile, folder: str, tensors: dict[str, _Tensor], path: Path
) -> dict[str, bytes]:
    """Returns by key the bytes of each storage, up to the last one that is needed."""
    reach: dict[str, int] = {}
    for tensor in tensors.values():
        num_bytes = _reach(archive, folder, tensor, path)
        key = tensor.storage.key
        reach[key] = max(reach.get(key, 0), num_bytes)
    size = path.stat().st_size
    if sum(reach.values()) > size:
        raise FormatError(
            f"{path}: its storages are larger than the file of {size} bytes; it is "
            "damaged"
        )
    return {
        key: _read(archive, f"{folder}{key}", path, num_bytes)
        for key, num_bytes in reach.items()
    }


def _reach(archive: zipfile.ZipFile, folder: str, tensor: _Tensor, path: Path) -> int:
    """Returns how many bytes of its storage a tensor needs. Checks that they exist."""
    storage, offset, shape, strides = tensor
    if not isinstance(storage, _Storage):
        raise FormatError(f"{path}: a tensor without a storage")
    try:
        stored = archive.getinfo(f"{folder}{storage.key}").file_size
    except KeyError as error:
        raise FormatError(f"{path}: its storage {storage.key!r}: {error}") from error
    itemsize = np.dtype(storage.dtype).itemsize
    numbers = (offset, *shape, *strides)
    whole = all(isinstance(n, int) and n >= 0 for n in numbers)
    if not whole or len(shape) != len(strides) or stored % itemsize:
        raise FormatError(f"{path}: a tensor of shape {shape}, strides {strides}")
    if 0 in shape:
        return 0
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if max(last + 1, math.prod(shape)) * itemsize > stored:
        raise FormatError(
            f"{path}: a tensor of shape {shape} reaches beyond its storage of "
            f"{stored // itemsize} numbers; the file is damaged"
        )
    return (last + 1) * itemsize


def _read(
    archive: zipfile.ZipFile, name: str, path: Path, num_bytes: int = -1
) -> bytes:
    """Returns an entry's first bytes, by default all of them."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise FormatError(
            f"{path}: {name} is compressed, which torch.save never does; save it again"
        )
    try:
        with archive.open(name) as entry:
            return entry.read(num_bytes)
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: {name}: {error}") from error


def _view(tensor: _Tensor, data: bytes) -> np.ndarray:
    """Returns the tensor as a read-only view of its storage."""
    dtype = np.dtype(tensor.storage.dtype)
    if 0 in tensor.shape:
        return np.empty(tensor.shape, dtype)
    flat = np.frombuffer(data, dtype, offset=tensor.offset * dtype.itemsize)
    steps = tuple(stride * dtype.itemsize for stride in tensor.strides)
    return np.lib.stride_tricks.as_strided(flat, tensor.shape, steps, writeable=False)
