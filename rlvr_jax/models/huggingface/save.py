"""A policy -> a directory that transformers loads."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from safetensors.numpy import save_file

from job_jax.schema import ConfigError
from rlvr_jax.models.huggingface.families import hf_settings, text_settings
from rlvr_jax.models.huggingface.layout import Place, places
from rlvr_jax.models.huggingface.load import (
    CONFIG,
    GENERATION,
    INDEX,
    WEIGHTS,
    read_json,
)
from rlvr_jax.models.transformer import Transformer

_SHARD_BYTES = 4 << 30  # of one file, at most, but for a tensor that is larger
CARRIED = (
    CONFIG,
    GENERATION,
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


def save_hf(policy: Transformer, path: str | os.PathLike[str]) -> None:
    """Writes the policy into a new directory, in the dtype of its parameters.

    Tokenizer, generation config and settings of no matter to the logits come from the
    directory that the policy was loaded from, if it was. Raises ConfigError where no
    architecture of transformers computes the policy, or weights lie in `path` already.
    """
    directory, table = Path(path), places(policy.config)
    if list(directory.glob("*.safetensors")):
        raise ConfigError(f"{directory} holds weights already; give a new directory")
    carried: dict[str, Any] = {}
    if policy.origin:
        carried = text_settings(read_json(Path(policy.origin) / CONFIG))
    settings = hf_settings(policy.config, vocab_size=policy.vocab_size, carried=carried)
    if not policy.origin and policy.eos_ids:
        settings["eos_token_id"] = list(policy.eos_ids)
    directory.mkdir(parents=True, exist_ok=True)
    params = {
        ".".join(map(str, at)): param[...]
        for at, param in nnx.to_flat_state(nnx.state(policy))
    }
    tensors = [
        _Tensor(place.name.format(layer), place, params[name], layer)
        for name, place in table.items()
        for layer in range(policy.config.layers if "{}" in place.name else 1)
    ]
    _write(directory, list(_shards(tensors)))
    for name in CARRIED if policy.origin else ():
        if (source := Path(policy.origin or "") / name).is_file():
            shutil.copyfile(source, directory / name)
    (directory / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")


class _Tensor(NamedTuple):
    name: str
    place: Place
    param: jax.Array
    layer: int

    @property
    def nbytes(self) -> int:
        stacked = "{}" in self.place.name
        return self.param.nbytes // (self.param.shape[0] if stacked else 1)

    def theirs(self) -> np.ndarray:
        """Returns the tensor as the file holds it."""
        one = self.param[self.layer] if "{}" in self.place.name else self.param
        return np.ascontiguousarray(self.place.to_theirs(np.asarray(one)))


def _shards(tensors: list[_Tensor]) -> Iterator[list[_Tensor]]:
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


def _write(directory: Path, shards: list[list[_Tensor]]) -> None:
    """Writes the files one after the other, each whole or not at all, and the index."""
    weight_map: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, start=1):
        name = f"{WEIGHTS}-{number:05}-of-{len(shards):05}.safetensors"
        if len(shards) == 1:
            name = f"{WEIGHTS}.safetensors"
        arrays = {tensor.name: tensor.theirs() for tensor in shard}
        unfinished = directory / f"{name}.tmp"
        save_file(arrays, unfinished, metadata={"format": "pt"})
        unfinished.replace(directory / name)
        weight_map |= dict.fromkeys(arrays, name)
        total += sum(array.nbytes for array in arrays.values())
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")
