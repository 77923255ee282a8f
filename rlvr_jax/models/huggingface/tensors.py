"""The place of each tensor in a Hugging Face directory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from job_jax.schema import ConfigError
from rlvr_jax.models.huggingface.config import read_json

INDEX, WEIGHTS = "model.safetensors.index.json", "model"

# A checkpoint may also hold vision parts and constants.
_IGNORED_PARTS = ("vision_tower.", "multi_modal_projector.", "vision_model.")
_IGNORED_SUFFIX = "rotary_emb.inv_freq"
# Prefixes under which models with vision keep the language model.
_WRAPPERS = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
)

# The dtypes that weights may be stored in; everything else is quantized.
FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")

# A tensor's name without wrappers -> its file, and its name there.
TensorIndex = dict[str, tuple[Path, str]]


def index_tensors(directory: Path) -> TensorIndex:
    """Returns the place of each tensor of the language model. Raises ConfigError."""
    if (directory / INDEX).is_file():
        weight_map = read_json(directory / INDEX).get("weight_map", {})
        file_names = sorted(set(weight_map.values()))
    else:
        weight_map, file_names = {}, [f"{WEIGHTS}.safetensors"]
    tensors: TensorIndex = {}
    stored_names: set[str] = set()
    for file_name in file_names:
        with open_safetensors(directory / file_name) as file:
            stored_names |= set(file.keys())
            for stored in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                if not _is_ignored(stored):
                    tensors[_canonical_name(stored)] = (directory / file_name, stored)
    if lost := sorted(set(weight_map) - stored_names):
        raise ConfigError(f"{directory}: {INDEX} names {abbreviate(lost)}, in no file")
    return tensors


def _is_ignored(name: str) -> bool:
    """Returns whether a tensor is not a parameter of the language model."""
    return (
        name.startswith(_IGNORED_PARTS)
        or any(f".{part}" in name for part in _IGNORED_PARTS)
        or name.endswith(_IGNORED_SUFFIX)
    )


@contextlib.contextmanager
def open_safetensors(path: Path) -> Iterator[Any]:
    """Yields a safetensors file. Raises ConfigError if it is missing or damaged."""
    if not path.is_file():
        beside = sorted(p.name for p in path.parent.glob("*"))
        raise ConfigError(
            f"no {path}; its directory holds {abbreviate(beside)}; download the whole "
            "model (hf download ORGANIZATION/NAME --local-dir DIRECTORY)"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise ConfigError(
            f"{path} is damaged ({error}); copy or download it again"
        ) from error


def _canonical_name(name: str) -> str:
    """Returns the name that the tensor has in a model without vision."""
    for wrapped, plain in _WRAPPERS:
        if name.startswith(wrapped):
            return plain + name.removeprefix(wrapped)
    return name


def abbreviate(names: list[str]) -> str:
    """Returns the first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more
