"""The model of a Hugging Face directory whose config.json and weights may disagree.

config.json can tie the output layer to the embedding (`tie_word_embeddings`) while the
files hold a separate output layer, such as a merged LoRA or a fine-tuned one. If both
tensors hold the same numbers, the model is tied. If not, it is untied, as in
transformers. This is decided when a directory's config is read, so a dry run, a run, a
resumed run and an export all see the same model.
"""

import dataclasses
import functools
import sys
from pathlib import Path

import numpy as np

from rlvr_jax.config import ModelConfig
from rlvr_jax.models.families import ParamMapping, load_family
from rlvr_jax.models.huggingface.config import (
    CONFIG,
    Dtype,
    is_hf_directory,
    read_model_config,
)
from rlvr_jax.models.huggingface.tensors import (
    FLOAT_DTYPES,
    TensorIndex,
    index_tensors,
    open_safetensors,
)

_CHUNK_NUMBERS = 1 << 22  # numbers of each tensor that are compared at a time


def read_stored_config(
    directory: Path, *, dtype: Dtype, family: str | None = None
) -> ModelConfig:
    """Returns the config of the model that a directory holds.

    It is the config in config.json, with one exception: if the output layer differs
    from the embedding that it should be tied to, `tie_embeddings` is False, and a line
    on stderr says so, once. If the directory holds no weights, config.json alone
    decides. Raises ConfigError as `read_model_config` does, and on damaged files.
    """
    config = read_model_config(directory, dtype=dtype, family=family)
    if not config.tie_embeddings or not is_hf_directory(directory):
        return config
    if not _has_other_head(directory, config, index_tensors(directory)):
        return config
    return dataclasses.replace(config, tie_embeddings=False)


def head_name(config: ModelConfig) -> str:
    """Returns the name of the output layer's tensor, whether or not it is tied."""
    untied = dataclasses.replace(config, tie_embeddings=False)
    mapping = load_family(config.family).param_mapping(untied)
    # A custom family may have no output layer while its checkpoint holds a copy of it.
    return mapping.get("lm_head", ParamMapping("lm_head.weight")).hf_name


def _has_other_head(directory: Path, config: ModelConfig, tensors: TensorIndex) -> bool:
    """Returns whether the files hold an output layer that is not the embedding."""
    mapping = load_family(config.family).param_mapping(config)
    embedding, head = mapping["embedding"].hf_name, head_name(config)
    if head not in tensors or embedding not in tensors:
        return False  # a missing embedding is refused when the weights are loaded
    first, second = (
        (*tensors[name], _stamp(tensors[name][0])) for name in (embedding, head)
    )
    if _are_equal(first, second):
        return False
    _report_once(
        f"{directory}: {CONFIG} ties the output layer to the embedding "
        f"(tie_word_embeddings: true), but {head} differs from {embedding}; each is "
        "loaded as a separate parameter"
    )
    return True


def _stamp(path: Path) -> tuple[int, int]:
    """Returns a file's size and modification time, to notice changes."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


_Stored = tuple[Path, str, tuple[int, int]]  # file, name there, stamp of the file


@functools.cache  # a run reads its config several times
def _are_equal(first: _Stored, second: _Stored) -> bool:
    """Returns whether two stored matrices hold the same numbers, row by row.

    A few rows of each are in memory at a time, and reading ends at the first
    difference. Numbers of different dtypes are compared in float64, which holds them
    all.
    """
    with open_safetensors(first[0]) as file, open_safetensors(second[0]) as other_file:
        one, other = file.get_slice(first[1]), other_file.get_slice(second[1])
        shape = one.get_shape()
        dtypes = {one.get_dtype(), other.get_dtype()}
        if len(shape) != 2 or shape != other.get_shape():
            return False  # refused by its shape when the weights are loaded
        if not dtypes <= set(FLOAT_DTYPES):
            return False  # refused by its dtype when the weights are loaded
        num_rows, width = shape
        step = max(1, _CHUNK_NUMBERS // width)
        bounds = ((at, min(at + step, num_rows)) for at in range(0, num_rows, step))
        return all(
            np.array_equal(
                one[start:stop].astype(np.float64), other[start:stop].astype(np.float64)
            )
            for start, stop in bounds
        )


@functools.cache
def _report_once(line: str) -> None:
    print(line, file=sys.stderr)
