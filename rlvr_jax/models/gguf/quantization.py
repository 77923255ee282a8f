"""ggml's quantizations, read with the package `gguf` (extra `gguf`).

The package is imported only when the first file is read.
"""

import functools
from typing import Any

import numpy as np

from job_jax.schema import ConfigError


def kind_name(number: int, *, where: str) -> str:
    """Returns the name of a quantization, such as Q4_1 for 3.

    Raises ConfigError, beginning with `where`, on a number that `gguf` does not know.
    """
    kinds = _gguf().GGMLQuantizationType
    if number not in set(kinds):
        raise ConfigError(
            f"{where} has quantization number {number}, which the installed gguf does "
            "not know; try a newer one (pip install -U gguf), or another file"
        )
    return kinds(number).name


def block_size(kind: str) -> tuple[int, int]:
    """Returns how many values, and how many bytes, a block of this quantization has."""
    gguf = _gguf()
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]


def can_dequantize(kind: str) -> bool:
    """Returns whether tensors of this quantization can be read."""
    _, size = block_size(kind)
    try:
        dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def dequantize(stored: np.ndarray, kind: str) -> np.ndarray:
    """Returns rows of stored bytes [rows, bytes] as float32 [rows, columns]."""
    gguf = _gguf()
    return gguf.dequantize(stored, gguf.GGMLQuantizationType[kind])


@functools.cache
def _gguf() -> Any:
    """Returns the module `gguf`. Raises ConfigError if it is not installed."""
    try:
        import gguf  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "reading GGUF files needs the package gguf: pip install 'rlvr_jax[gguf]'"
        ) from error
    return gguf
