"""Tensors out of a file of torch.save, without torch and without running its pickle.

Such a file is a zip archive: `NAME/data.pkl`, a pickle in which each tensor names its
storage, and `NAME/data/KEY`, the storages as raw bytes. Unpickling runs whatever
functions a pickle names, so ours knows five names only, none of which does more than
note its arguments; any other name is refused before anything is called.
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


def read_tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the named tensors of a saved state dict.

    Raises FormatError where the file is no such archive, holds other objects than
    tensors, or describes a tensor that reaches outside its storage.
    """
    if not zipfile.is_zipfile(path):
        raise FormatError(
            f"{path} is no zip archive of torch.save; save it again with torch >= 1.6"
        )
    with zipfile.ZipFile(path) as archive:
        pickles = [n for n in archive.namelist() if n.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise FormatError(f"{path} is a zip archive, but not one of torch.save")
        root = pickles[0].removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise FormatError(f"{path} was written on a big-endian machine")
        state = _Unpickler(archive.read(pickles[0]), path).read()
        if not isinstance(state, dict):
            raise FormatError(f"{path} holds no state dict; save model.state_dict()")
        # Through `dict`: the pickle may have given the object attributes of its own.
        return {
            str(name): _tensor(archive, f"{root}data/", value, path)
            for name, value in dict.items(state)
            if isinstance(value, _Tensor)
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
            return name  # text: the pickle can hand it on, not call it
        raise FormatError(
            f"{self._path} holds a {module}.{name}; only tensors are read, so save "
            "model.state_dict() instead"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        match pid:
            case ("storage", str(kind), str(key), str(), int(numel)):
                return _Storage(key=key, dtype=_STORAGES[kind], numel=numel)
        raise FormatError(f"{self._path}: not a storage: {pid!r}")


def _rebuild_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *_: Any
) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _tensor(
    archive: zipfile.ZipFile, folder: str, tensor: _Tensor, path: Path
) -> np.ndarray[Any, Any]:
    """Returns a copy of the described part of a storage."""
    storage, offset, shape, strides = tensor
    if not isinstance(storage, _Storage):
        raise FormatError(f"{path}: a tensor without a storage")
    dtype = np.dtype(storage.dtype)
    try:
        data = archive.read(f"{folder}{storage.key}")
    except (KeyError, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: its storage {storage.key!r}: {error}") from error
    numbers = (offset, *shape, *strides)
    whole = all(isinstance(n, int) and n >= 0 for n in numbers)
    if not whole or len(shape) != len(strides) or len(data) % dtype.itemsize:
        raise FormatError(f"{path}: a tensor of shape {shape}, strides {strides}")
    flat = np.frombuffer(data, dtype)
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if 0 in shape:
        return np.empty(shape, dtype)
    if max(last + 1, math.prod(shape)) > flat.size:
        raise FormatError(
            f"{path}: a tensor of shape {shape} reaches beyond its storage of "
            f"{flat.size} numbers; the file is damaged"
        )
    steps = tuple(stride * dtype.itemsize for stride in strides)
    view = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)
    return view.copy()
