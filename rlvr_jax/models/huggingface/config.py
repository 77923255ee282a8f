"""config.json of a Hugging Face directory <-> `ModelConfig`.

transformers reads config.json and fills in missing settings; a family
(rlvr_jax/models/families) translates them. An unsupported setting that would change the
function is refused, never dropped.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from job_jax.config_io import diff
from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models.families import Family, HFConfig, family_name, load_family
from rlvr_jax.models.masks import expand_layer_types
from rlvr_jax.models.rope import attention_factor
from rlvr_jax.tokenizer.huggingface import import_transformers

Dtype = Literal["float32", "bfloat16"]

CONFIG = "config.json"
# Fields of ModelConfig that only change how the function is computed or initialized.
FUNCTION_PRESERVING = (
    "init_scale",
    "compute_dtype",
    "param_dtype",
    "scan_layers",
    "remat",
    "attention",
    "attention_chunk_size",
    "sequence_parallel",
)
_HUB_NAME = re.compile(r"\w[\w.-]*")  # of an organization, of a model
_LOCAL = "models"  # where the documentation puts checkpoints
_ROPE_FIELDS = {  # the fields that each kind of scaling reads; the others read none
    "llama3": ("low_freq_factor", "high_freq_factor", "original_max_position"),
    "dynamic": ("original_max_position",),
    "yarn": (
        "beta_fast",
        "beta_slow",
        "truncate",
        "attention_factor",
        "original_max_position",
    ),
}


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file. Raises ConfigError if there is none."""
    if not path.is_file():
        _refuse_gguf(path.parent)
        missing = path if path.parent.is_dir() else f"directory {path.parent}"
        raise ConfigError(
            f"no {missing}; give a directory of a Hugging Face checkpoint"
            f"{_download_hint(path.parent)}"
        )
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return value


def _refuse_gguf(path: Path) -> None:
    """Raises ConfigError for a GGUF file, with the command that converts it.

    `path` may be the file, or a directory with one, as downloads have it.
    """
    files = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    if files and files[0].suffix == ".gguf":
        raise ConfigError(
            f"{files[0]} is a GGUF file. Make a Hugging Face directory of it, and give "
            f"that instead: python -m rlvr_jax.convert from-gguf {files[0]} "
            f"{files[0].with_suffix('')}"
        )


def is_hf_directory(path: Path) -> bool:
    """Returns whether a directory holds weights as transformers saves them."""
    return (path / CONFIG).is_file() and any(path.glob("*.safetensors"))


def _download_hint(directory: Path) -> str:
    """Returns how to get a checkpoint whose directory is missing, else nothing."""
    if directory.exists():
        return ""
    parts = directory.parts
    is_hub_name = len(parts) == 2 and all(map(_HUB_NAME.fullmatch, parts))
    if not is_hub_name or parts[0] == _LOCAL or Path(parts[0]).exists():
        return f" (hf download ORGANIZATION/NAME --local-dir {directory} makes one)"
    local = Path(_LOCAL) / parts[1]
    return (
        f". Nothing is downloaded by itself: run hf download {directory} --local-dir "
        f"{local}, and set pretrained.path={local}"
    )


def text_settings(directory: Path) -> dict[str, Any]:
    """Returns config.json, with `text_config`, if any, merged into the top level."""
    raw = read_json(directory / CONFIG)
    text = {**raw, **(raw.get("text_config") or {})}
    text.pop("text_config", None)
    return text


def read_model_config(
    directory: Path, *, dtype: Dtype, family: str | None = None
) -> ModelConfig:
    """Returns the config of the model that config.json describes.

    `family` is "package.module:NAME" for a custom family; without it, config.json's
    architecture decides. Raises ConfigError on anything unsupported.
    """
    raw = read_json(directory / CONFIG)
    name = family_name(raw) if family is None else family
    reader = load_family(name)
    architectures = raw.get("architectures") or reader.architectures
    if not set(architectures) & set(reader.architectures):
        raise ConfigError(
            f"{directory / CONFIG}: architecture {architectures[0]!r} is not of "
            f"model.family={name}, which has {', '.join(reader.architectures)}"
        )
    return _model_config(name, reader, raw, dtype)


def _model_config(
    name: str, family: Family, raw: Mapping[str, object], dtype: Dtype
) -> ModelConfig:
    fields = family.from_hf(_with_defaults(raw, family))
    return ModelConfig(
        **fields | {"family": name, "compute_dtype": dtype, "param_dtype": dtype}
    )


def _with_defaults(raw: Mapping[str, object], family: Family) -> HFConfig:
    """Returns config.json of the language model as its class in transformers reads it.

    RoPE's settings are then in `rope_parameters`, and `layer_types` names every layer.
    """
    transformers = import_transformers()
    model_type = family.read_as or raw.get("model_type") or family.model_type
    try:
        config_class = transformers.CONFIG_MAPPING[model_type]
        config = config_class.from_dict(dict(raw) | {"model_type": model_type})
    except Exception as error:  # its validation has several exception types
        reason = " ".join(str(error).split())
        raise ConfigError(f"{CONFIG}: transformers refuses it: {reason}") from error
    text_config = config.get_text_config()
    # transformers' models do this when they are created, because
    # original_max_position_embeddings may be outside of RoPE's settings.
    text_config.standardize_rope_params()
    return text_config.to_dict()


def hf_vocab_size(pretrained: PretrainedConfig) -> int:
    """Returns V, the rows of the embedding: from the config, else from config.json."""
    if pretrained.vocab_size:
        return pretrained.vocab_size
    directory = Path(pretrained.path)
    settings = text_settings(directory)
    if "vocab_size" in settings:
        return settings["vocab_size"]
    raw = read_json(directory / CONFIG)
    return _with_defaults(raw, load_family(family_name(raw)))["vocab_size"]


def to_hf_config(
    config: ModelConfig, *, vocab_size: int, extra: Mapping[str, object]
) -> HFConfig:
    """Returns config.json for a policy, plus the settings in `extra` that it lacks.

    Raises ConfigError, which names the fields, if the family cannot express the policy.
    """
    family = load_family(config.family)
    settings = family.to_hf(config) | {
        "architectures": [family.architectures[0]],
        "model_type": family.model_type,
        "vocab_size": vocab_size,
    }
    read_back = _model_config(config.family, family, settings, config.param_dtype)
    if lines := diff(canonical_config(read_back), canonical_config(config)):
        raise ConfigError(
            f"no checkpoint of model.family={config.family} can express this policy; "
            f"it would change model.{', model.'.join(lines)}"
        )
    replaced = ("rope_parameters", "text_config", "vision_config", "dtype")
    kept = {name: v for name, v in extra.items() if name not in replaced}
    return kept | settings


def canonical_config(config: ModelConfig) -> ModelConfig:
    """Returns the one config that represents all that compute the same function."""
    defaults = vars(ModelConfig())
    free = {name: defaults[name] for name in FUNCTION_PRESERVING} | {"max_seq_len": 1}
    read = _ROPE_FIELDS.get(config.rope_scaling, ())
    for name in {name for names in _ROPE_FIELDS.values() for name in names} - {*read}:
        free[f"rope_{name}"] = defaults[f"rope_{name}"]
    if config.rope_scaling == "yarn":
        free["rope_attention_factor"] = attention_factor(config)
    local_theta = config.rope_local_theta
    if config.rope_scaling == "none":  # else sliding layers with their own are unscaled
        local_theta = local_theta or config.rope_theta
    return dataclasses.replace(
        config,
        layer_types=expand_layer_types(config),
        query_pre_attn_scalar=config.query_pre_attn_scalar or config.head_dim,
        rope_local_theta=local_theta if config.sliding_window else 0.0,
        **free,
    )
