"""Hugging Face checkpoints on disk, made from names and shapes without torch."""

import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

from tests.golden.family_models import MODELS, weight

_FOLDER = pathlib.Path(__file__).parents[1] / "golden"
GOLDEN = {
    name: golden
    for file in ("family_goldens.json", "variant_goldens.json")
    for name, golden in json.loads((_FOLDER / file).read_text())["families"].items()
}


def tensors(family: str) -> dict[str, np.ndarray]:
    """Returns the family's tensors under Hugging Face's names."""
    golden = GOLDEN[family]
    return {
        name: weight(name, tuple(shape), seed=golden["seed"])
        for name, shape in golden["tensors"].items()
    }


def written(
    directory: pathlib.Path, family: str, *, shards: int = 1, **changes
) -> pathlib.Path:
    """Returns the directory with the family's checkpoint, split into `shards` files."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(MODELS[family] | changes))
    held = tensors(family)
    if shards == 1:
        save_file(held, directory / "model.safetensors")
        return directory
    weight_map = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(held.items())[number::shards])
        save_file(part, directory / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory
