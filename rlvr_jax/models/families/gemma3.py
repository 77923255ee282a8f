"""Gemma 3's text model: Gemma 2 with head norms and local RoPE in sliding layers."""

import dataclasses
from typing import Any

from rlvr_jax.config import ModelConfig
from rlvr_jax.models.families import gemma2
from rlvr_jax.models.families.base import Family, HFConfig, ModelSize
from rlvr_jax.models.families.mapping import (
    POST_NORMS,
    QK_NORM,
    ParamMapping,
    decoder_mapping,
)

_1B = ModelConfig(
    family="gemma3",
    num_layers=26,
    hidden_size=1152,
    intermediate_size=6912,
    num_heads=4,
    num_kv_heads=1,
    head_dim=256,
    rope_theta=1_000_000.0,
    rope_local_theta=10_000.0,
    layer_types=("sliding",) * 5 + ("full",),
    sliding_window=512,
    qk_norm=True,
    query_pre_attn_scalar=256.0,
    activation="gelu_tanh",
    rms_norm_unit_offset=True,
    use_post_norms=True,
    scale_embeddings=True,
    max_seq_len=32_768,
)
_4B = dataclasses.replace(
    _1B,
    num_layers=34,
    hidden_size=2560,
    intermediate_size=10_240,
    num_heads=8,
    num_kv_heads=4,
    rope_scaling="linear",
    rope_factor=8.0,
    sliding_window=1024,
    max_seq_len=131_072,
)


def from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of `ModelConfig`."""
    return gemma2.gemma_from_hf(hf) | {"qk_norm": True}


def to_hf(config: ModelConfig) -> HFConfig:
    """Returns config.json."""
    return gemma2.to_hf(config) | {
        "rope_local_base_freq": config.rope_local_theta or config.rope_theta
    }


def param_mapping(config: ModelConfig) -> dict[str, ParamMapping]:
    """Returns the tensors of each parameter: Gemma 2's, and the head norms."""
    return decoder_mapping(config, POST_NORMS | QK_NORM)


FAMILY = Family(
    model_type="gemma3_text",
    # The second one also has a vision tower, which is left out.
    architectures=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    from_hf=from_hf,
    to_hf=to_hf,
    param_mapping=param_mapping,
    sizes={
        "gemma-3-1b": ModelSize(_1B, 262_144),
        "gemma-3-4b": ModelSize(_4B, 262_208),
    },
)
