"""The families of models that can be loaded, trained and saved: one file each.

To add one, write a module with a `Family` and set `model.family` to its
"package.module:NAME" (docs/models/huggingface.md). A family of ours also needs a line
in `rlvr_jax.config.model.FAMILIES`.
"""

from collections.abc import Mapping
from typing import Any

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config.model import FAMILIES
from rlvr_jax.models.families.base import Family, HFConfig, ModelSize
from rlvr_jax.models.families.mapping import ParamMapping, decoder_mapping

__all__ = [
    "SIZES",
    "Family",
    "HFConfig",
    "ModelSize",
    "ParamMapping",
    "decoder_mapping",
    "family_name",
    "load_family",
]


def load_family(name: str) -> Family:
    """Returns the family of this name: one of ours, or "package.module:NAME".

    Raises ConfigError if there is no such family.

    Example:
        >>> load_family("qwen2").architectures
        ('Qwen2ForCausalLM',)
    """
    family = FAMILIES.load(name)
    if not isinstance(family, Family):
        raise ConfigError(
            f"model.family={name!r} is a {type(family).__name__}, not a "
            "rlvr_jax.models.families.Family; name the object"
        )
    return family


def family_name(raw: Mapping[str, Any]) -> str:
    """Returns which of our families a config.json belongs to.

    The first entry of `architectures` decides, or else `model_type`. Raises ConfigError
    on any other family, and suggests the nearest.

    Example:
        >>> family_name({"architectures": ["Gemma3ForCausalLM"]})
        'gemma3'
    """
    families = {name: load_family(name) for name in FAMILIES.names}
    if raw.get("architectures"):
        key = raw["architectures"][0]
        names = {a: name for name, f in families.items() for a in f.architectures}
    else:
        key = str(raw.get("model_type"))
        names = {family.model_type: name for name, family in families.items()}
    if key not in names:
        raise ConfigError(
            f"config.json: architecture {key!r} is not supported"
            f"{did_you_mean(key, names)} For a custom family, set "
            "model.family=package.module:NAME"
        )
    return names[key]


# Published checkpoints, by the last part of their hub name.
SIZES: dict[str, ModelSize] = {
    size: value
    for name in FAMILIES.names
    for size, value in load_family(name).sizes.items()
}
