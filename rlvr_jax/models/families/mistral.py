"""Mistral: Llama with a sliding window in every layer."""

from typing import Any

from rlvr_jax.config import ModelConfig
from rlvr_jax.models.families.base import (
    Family,
    HFConfig,
    ModelSize,
    common_from_hf,
    common_to_hf,
)
from rlvr_jax.models.families.mapping import decoder_mapping

_7B = ModelConfig(
    family="mistral",
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14_336,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    layer_types=("sliding",),
    sliding_window=4096,
    norm_eps=1e-5,
    tie_embeddings=False,
    max_seq_len=32_768,
)


def from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of `ModelConfig`; without a window all layers are full."""
    fields = common_from_hf(hf)
    if hf["sliding_window"] is not None:
        fields |= {"sliding_window": hf["sliding_window"], "layer_types": ("sliding",)}
    return fields


def to_hf(config: ModelConfig) -> HFConfig:
    """Returns config.json."""
    return common_to_hf(config) | {"sliding_window": config.sliding_window or None}


FAMILY = Family(
    model_type="mistral",
    architectures=("MistralForCausalLM",),
    from_hf=from_hf,
    to_hf=to_hf,
    param_mapping=decoder_mapping,
    sizes={"Mistral-7B-v0.1": ModelSize(_7B, 32_000)},
)
