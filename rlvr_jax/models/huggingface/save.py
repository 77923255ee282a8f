"""A policy -> a directory that transformers loads."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flax import nnx
from safetensors.numpy import save_file

from job_jax.files import write_atomically
from job_jax.schema import ConfigError
from rlvr_jax.models.families import ParamMapping, load_family
from rlvr_jax.models.huggingface.config import CONFIG, text_settings, to_hf_config
from rlvr_jax.models.huggingface.load import GENERATION
from rlvr_jax.models.huggingface.tensors import INDEX, WEIGHTS
from rlvr_jax.models.transformer import Transformer

_SHARD_BYTES = 4 << 30  # the most per file, unless a single tensor is larger
_CONTEXT = "max_position_embeddings"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
COPIED_FILES = (CONFIG, GENERATION, *TOKENIZER_FILES)


def save_hf(policy: Transformer, path: str | os.PathLike[str]) -> None:
    """Writes the policy into a new directory, in the dtype of its parameters.

    `transformers` can load that directory. If the policy was loaded from one, its
    tokenizer, generation config and other settings are copied. Raises ConfigError if
    the policy's family cannot express it, or if `path` already holds weights.
    `load_hf` has an example.
    """
    directory = Path(path)
    mapping = load_family(policy.config.family).param_mapping(policy.config)
    if list(directory.glob("*.safetensors")):
        raise ConfigError(f"{directory} holds weights already; give a new directory")
    extra = text_settings(Path(policy.hf_dir)) if policy.hf_dir else {}
    settings = to_hf_config(policy.config, vocab_size=policy.vocab_size, extra=extra)
    if policy.config.rope_scaling != "dynamic" and _CONTEXT in extra:
        # A run may use less of the context than the weights were made for.
        settings[_CONTEXT] = max(settings[_CONTEXT], extra[_CONTEXT])
    if not policy.hf_dir and policy.eos_ids:
        settings["eos_token_id"] = list(policy.eos_ids)
    directory.mkdir(parents=True, exist_ok=True)
    params = {
        ".".join(map(str, key)): param[...]
        for key, param in nnx.to_flat_state(nnx.state(policy))
    }
    tensors = [
        _Tensor(m.hf_name.format(layer), m, params[name], layer)
        for name, m in mapping.items()
        for layer in range(policy.config.num_layers if "{}" in m.hf_name else 1)
    ]
    _write_files(directory, list(_split_into_files(tensors)))
    for name in COPIED_FILES if policy.hf_dir else ():
        if (source := Path(policy.hf_dir or "") / name).is_file():
            shutil.copyfile(source, directory / name)
    (directory / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")


class _Tensor(NamedTuple):
    name: str
    mapping: ParamMapping
    param: jax.Array
    layer: int

    @property
    def nbytes(self) -> int:
        stacked = "{}" in self.mapping.hf_name
        return self.param.nbytes // (self.param.shape[0] if stacked else 1)

    def to_hf(self) -> np.ndarray:
        """Returns the tensor in the file's layout."""
        layer = self.param[self.layer] if "{}" in self.mapping.hf_name else self.param
        return np.ascontiguousarray(self.mapping.to_hf(np.asarray(layer)))


def _split_into_files(tensors: list[_Tensor]) -> Iterator[list[_Tensor]]:
    """Yields the tensors of each file."""
    shard: list[_Tensor] = []
    size = 0
    for tensor in tensors:
        if shard and size + tensor.nbytes > _SHARD_BYTES:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += tensor.nbytes
    yield shard


def _write_files(directory: Path, shards: list[list[_Tensor]]) -> None:
    """Writes the files one by one, each completely or not at all, and the index."""
    weight_map: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, start=1):
        name = f"{WEIGHTS}-{number:05}-of-{len(shards):05}.safetensors"
        if len(shards) == 1:
            name = f"{WEIGHTS}.safetensors"
        arrays = {tensor.name: tensor.to_hf() for tensor in shard}
        with write_atomically(directory / name) as partial:
            save_file(arrays, partial, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(arrays, name)
        total += sum(array.nbytes for array in arrays.values())
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")
