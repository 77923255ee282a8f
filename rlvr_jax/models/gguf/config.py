"""The settings of a GGUF file -> `ModelConfig`.

Every setting of the model is either used or refused, because a skipped setting could
change the computed function.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.gguf.architectures import (
    HEAD,
    ROPE_FACTORS,
    Architecture,
)
from rlvr_jax.models.gguf.quantization import dequantize
from rlvr_jax.models.gguf.reader import GGUFFile
from rlvr_jax.models.huggingface.config import Dtype

# Settings that are fine with this value, which is what the model computes anyway.
_MUST_BE: dict[str, Any] = {
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
    "rope.scaling.attn_factor": 1.0,
}
# Settings that change nothing here: the embedding has `vocab_size` rows, and the others
# only describe training.
_NOTES = (
    "vocab_size",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
)
# Gemma 3's files leave these out; llama.cpp has them in its code.
_GEMMA3_LOCAL_THETA, _GEMMA3_PATTERN = 10_000.0, 6
_GEMMA3_27B_LAYERS = 62  # the one size that scales queries by hidden_size / num_heads
_LLAMA_THETA = 10_000.0  # of the first Llamas, whose files leave it out
_ROPE_TOLERANCE = 1e-4  # relative; factors are computed in float32


def read_config(
    file: GGUFFile, architecture: Architecture, *, dtype: Dtype
) -> ModelConfig:
    """Returns the config of the model in a GGUF file, to be stored in this dtype.

    Raises ConfigError on a setting that is missing or not supported.
    """
    name = architecture.name
    settings = _Settings(file.path, file.metadata, name)
    fields = {"family": architecture.family, **architecture.fields}
    fields |= _common_fields(settings, file)
    default_theta = _LLAMA_THETA if name == "llama" else None
    fields |= _rope_fields(settings, default_theta)
    if name == "llama":
        fields |= _llama3_rope_fields(file, fields) | _mistral_fields(settings)
    elif name == "gemma3":
        fields |= _gemma3_fields(settings, fields)
    settings.check_all_used()
    return ModelConfig(**fields, param_dtype=dtype, compute_dtype=dtype)


class _Settings:
    """The settings of one architecture; remembers which ones have been used."""

    def __init__(self, path: Path, metadata: Mapping[str, object], name: str):
        prefix = f"{name}."
        self._path, self._prefix = path, prefix
        self._unused = {
            key.removeprefix(prefix): value
            for key, value in metadata.items()
            if key.startswith(prefix)
        }

    def take(self, key: str, kind: type, default: object = None) -> Any:
        """Returns a setting; a float is the shortest decimal with its float32 value.

        Raises ConfigError if it is of another kind, or is missing without a default.
        """
        value = self._unused.pop(key, default)
        if value is None:
            raise ConfigError(f"{self._path} lacks the setting {self._prefix}{key}")
        if kind is float and isinstance(value, int | float):
            return float(str(np.float32(value)))
        if not isinstance(value, kind):
            self.refuse(key, value)
        return value

    def refuse(self, key: str, value: object) -> NoReturn:
        """Raises ConfigError: this setting, with its value, is not supported."""
        raise ConfigError(
            f"{self._path}: {self._prefix}{key}={repr(value)[:60]} is not supported"
        )

    def check_all_used(self) -> None:
        """Raises ConfigError if a setting is left that could change the model."""
        for key, value in self._unused.items():
            if key not in _NOTES and _MUST_BE.get(key) != value:
                self.refuse(key, value)


def _common_fields(settings: _Settings, file: GGUFFile) -> dict[str, Any]:
    hidden_size = settings.take("embedding_length", int)
    num_heads = settings.take("attention.head_count", int)
    rotated = settings.take("rope.dimension_count", int, 0)
    head_dim = settings.take(
        "attention.key_length", int, rotated or hidden_size // num_heads
    )
    value_dim = settings.take("attention.value_length", int, head_dim)
    if (rotated or head_dim) != head_dim or value_dim != head_dim:
        raise ConfigError(
            f"{file.path}: RoPE over {rotated} of {head_dim} dimensions, with values "
            f"of {value_dim}, is not supported; all three must be equal"
        )
    return {
        "num_layers": settings.take("block_count", int),
        "hidden_size": hidden_size,
        "intermediate_size": settings.take("feed_forward_length", int),
        "num_heads": num_heads,
        "num_kv_heads": settings.take("attention.head_count_kv", int, num_heads),
        "head_dim": head_dim,
        "norm_eps": settings.take("attention.layer_norm_rms_epsilon", float),
        "tie_embeddings": HEAD not in file.tensors,
        "max_seq_len": settings.take("context_length", int),
    }


def _rope_fields(settings: _Settings, default_theta: float | None) -> dict[str, Any]:
    """Returns RoPE's base and its scaling, which may be none or linear."""
    fields = {"rope_theta": settings.take("rope.freq_base", float, default_theta)}
    kind = settings.take("rope.scaling.type", str, "linear")  # as llama.cpp has it
    factor = settings.take("rope.scaling.factor", float, 1.0)
    if kind not in ("none", "linear"):
        settings.refuse("rope.scaling.type", kind)
    if kind == "linear" and factor not in (0, 1):
        fields |= {"rope_scaling": kind, "rope_factor": factor}
    return fields


def _llama3_rope_fields(file: GGUFFile, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the scaling of Llama 3.1 and later, if the file has its factors.

    The file holds the number that each frequency is divided by: 1 for the fast ones,
    `factor` for the slow ones, and a blend between. Only `factor` differs between the
    published models. Raises ConfigError on any other factors.
    """
    tensor = file.tensors.get(ROPE_FACTORS)
    if tensor is None:
        return {}
    stored = dequantize(file.stored_bytes(tensor), tensor.kind).ravel()
    scaling = {"rope_scaling": "llama3", "rope_factor": float(stored.max())}
    if scaling["rope_factor"] == 1:
        return {}
    config = ModelConfig(**{**fields, **scaling})
    expected = _llama3_factors(config)
    if stored.shape != expected.shape or not np.allclose(
        stored, expected, rtol=_ROPE_TOLERANCE, atol=0
    ):
        raise ConfigError(
            f"{file.path}: {ROPE_FACTORS} does not hold the factors of Llama 3's RoPE "
            f"(low {config.rope_low_freq_factor:g}, high "
            f"{config.rope_high_freq_factor:g}, context "
            f"{config.rope_original_max_position}); no others are supported"
        )
    return scaling


def _llama3_factors(config: ModelConfig) -> np.ndarray:
    """Returns the number [H / 2] that Llama 3's RoPE divides each frequency by."""
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    turns = config.rope_original_max_position / (
        2 * np.pi * config.rope_theta**exponents
    )
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    unscaled = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / (unscaled + (1 - unscaled) / config.rope_factor)


def _mistral_fields(settings: _Settings) -> dict[str, Any]:
    """Returns the window of every layer, if there is one: only Mistral's models do."""
    window = settings.take("attention.sliding_window", int, 0)
    if not window:
        return {}
    return {"family": "mistral", "sliding_window": window, "layer_types": ("sliding",)}


def _gemma3_fields(settings: _Settings, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Gemma 3's extra fields: windows, their RoPE, the scale of queries."""
    pattern = settings.take("attention.sliding_window_pattern", int, _GEMMA3_PATTERN)
    scalar = fields["head_dim"]
    if fields["num_layers"] == _GEMMA3_27B_LAYERS:
        scalar = fields["hidden_size"] // fields["num_heads"]
    return {
        "layer_types": ("sliding",) * (pattern - 1) + ("full",),
        "sliding_window": settings.take("attention.sliding_window", int),
        "rope_local_theta": settings.take(
            "rope.freq_base_swa", float, _GEMMA3_LOCAL_THETA
        ),
        "query_pre_attn_scalar": float(scalar),
        "final_logit_softcap": settings.take("final_logit_softcapping", float, 0.0),
    }
