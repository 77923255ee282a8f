"""The tensors of a GGUF file -> one file of safetensors.

Tensors are read, dequantized and written one block of rows at a time. No tensor is ever
in memory as a whole.
"""

import dataclasses
import json
import math
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
from flax import nnx

from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.families import load_family
from rlvr_jax.models.gguf.architectures import ROPE_FACTORS, Architecture
from rlvr_jax.models.gguf.quantization import can_dequantize, dequantize
from rlvr_jax.models.gguf.reader import GGUFFile, StoredTensor
from rlvr_jax.models.huggingface.config import Dtype
from rlvr_jax.models.huggingface.tensors import abbreviate
from rlvr_jax.models.transformer import Transformer

_REPORT_EVERY_S = 5.0
_BLOCK_VALUES = 1 << 23  # dequantized at a time: 32 MiB of float32
_DTYPES = {"float32": ("F32", np.float32), "bfloat16": ("BF16", ml_dtypes.bfloat16)}


@dataclasses.dataclass(frozen=True)
class Conversion:
    """How one tensor is converted.

    `hf_name` is its new name. `row_order` [rows] is the stored row of each new row, or
    None to keep the order. `offset` is subtracted from all values.
    """

    hf_name: str
    stored: StoredTensor
    row_order: np.ndarray | None
    offset: float


def plan_conversions(
    file: GGUFFile, architecture: Architecture, config: ModelConfig, vocab_size: int
) -> list[Conversion]:
    """Returns how each tensor is written, in the order of the GGUF file.

    Raises ConfigError if the file lacks a tensor of the model, has an extra one, or has
    one of another shape, and if a quantization cannot be read.
    """
    stored = {name: t for name, t in file.tensors.items() if name != ROPE_FACTORS}
    shapes = _tensor_shapes(config, vocab_size)
    hf_names = {name: architecture.hf_name(name) for name in stored}
    if unknown := [name for name, hf in hf_names.items() if hf not in shapes]:
        raise ConfigError(
            f"{file.path} holds {abbreviate(unknown)}, which a model of this "
            "architecture has no place for"
        )
    if missing := sorted(set(shapes) - set(hf_names.values())):
        raise ConfigError(f"{file.path} lacks the tensors of {abbreviate(missing)}")
    for name, tensor in stored.items():
        if tensor.shape != shapes[hf_names[name]]:
            raise ConfigError(
                f"{file.path}: {name} has shape {tensor.shape}, and its settings "
                f"describe {shapes[hf_names[name]]}"
            )
    _check_kinds(file.path, stored)
    return [
        Conversion(
            hf_names[name],
            tensor,
            _row_order(hf_names[name], architecture, config),
            1.0 if architecture.norms_plus_one and "norm" in name else 0.0,
        )
        for name, tensor in stored.items()
    ]


def _tensor_shapes(config: ModelConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each tensor of a model, by Hugging Face's name."""
    policy = nnx.eval_shape(lambda: Transformer(config, vocab_size, nnx.Rngs(0)))
    params = {
        ".".join(map(str, path)): param.shape
        for path, param in nnx.to_flat_state(nnx.state(policy))
    }
    shapes = {}
    for name, mapping in load_family(config.family).param_mapping(config).items():
        stacked = "{}" in mapping.hf_name
        shape = mapping.hf_shape(params[name][1:] if stacked else params[name])
        for layer in range(config.num_layers if stacked else 1):
            shapes[mapping.hf_name.format(layer)] = shape
    return shapes


def _check_kinds(path: Path, stored: Mapping[str, StoredTensor]) -> None:
    """Raises ConfigError on a quantization that the package `gguf` cannot read."""
    for kind in sorted({tensor.kind for tensor in stored.values()}):
        if not can_dequantize(kind):
            names = [name for name, tensor in stored.items() if tensor.kind == kind]
            raise ConfigError(
                f"{path}: quantization {kind}, of {abbreviate(names)}, is not supported"
            )


def _row_order(
    hf_name: str, architecture: Architecture, config: ModelConfig
) -> np.ndarray | None:
    """Returns the stored row of each row of queries or keys.

    llama.cpp rotates rows 2i and 2i + 1 of a head, Hugging Face rows i and i + H / 2.
    """
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
    count = heads.get(hf_name.split(".")[-2], 0)
    if not architecture.rope_interleaved or not count:
        return None
    rows = np.arange(count * config.head_dim)
    return rows.reshape(count, config.head_dim // 2, 2).swapaxes(1, 2).ravel()


def output_bytes(conversions: list[Conversion], dtype: Dtype) -> int:
    """Returns how many bytes all tensors take in this dtype."""
    values = sum(math.prod(each.stored.shape) for each in conversions)
    return values * np.dtype(_DTYPES[dtype][1]).itemsize


def write_safetensors(
    path: Path, file: GGUFFile, conversions: list[Conversion], *, dtype: Dtype
) -> None:
    """Writes all tensors into one file of safetensors.

    Format: https://github.com/huggingface/safetensors#format
    """
    code, numpy_dtype = _DTYPES[dtype]
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for each in conversions:
        end = start + output_bytes([each], dtype)
        header[each.hf_name] = {
            "dtype": code,
            "shape": each.stored.shape,
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    progress = _Progress(start)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for each in conversions:
            for block in _value_blocks(file, each):
                progress.add(out.write(block.astype(numpy_dtype).tobytes()))


def _value_blocks(file: GGUFFile, conversion: Conversion) -> Iterator[np.ndarray]:
    """Yields the values of a tensor as float32 [rows, columns], some rows at a time."""
    tensor = conversion.stored
    stored = file.stored_bytes(tensor)
    step = max(1, _BLOCK_VALUES // tensor.shape[-1])
    for start in range(0, len(stored), step):
        rows = slice(start, start + step)
        taken = rows if conversion.row_order is None else conversion.row_order[rows]
        yield dequantize(stored[taken], tensor.kind) - np.float32(conversion.offset)


class _Progress:
    """Prints how much has been written, every few seconds."""

    def __init__(self, total: int):
        self._total, self._written = total, 0
        self._start = self._printed = time.monotonic()

    def add(self, count: int) -> None:
        """Counts bytes that have been written."""
        self._written += count
        now = time.monotonic()
        if now - self._printed < _REPORT_EVERY_S:
            return
        self._printed = now
        left = (now - self._start) * (self._total / self._written - 1)
        print(
            f"{self._written / 1e9:.1f} of {self._total / 1e9:.1f} GB written, "
            f"about {left:.0f} s left",
            flush=True,
        )
