"""Qwen3: Llama with a norm on each query and key head."""

import dataclasses
from typing import Any

from rlvr_jax.config import ModelConfig
from rlvr_jax.models.families import qwen2
from rlvr_jax.models.families.base import (
    Family,
    HFConfig,
    ModelSize,
    common_from_hf,
    sliding_from_hf,
)
from rlvr_jax.models.families.mapping import QK_NORM, ParamMapping, decoder_mapping

_0_6B = ModelConfig(
    family="qwen3",
    num_layers=28,
    hidden_size=1024,
    intermediate_size=3072,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    rope_theta=1_000_000.0,
    qk_norm=True,
    max_seq_len=40_960,
)
_1_7B = dataclasses.replace(_0_6B, hidden_size=2048, intermediate_size=6144)
_8B = dataclasses.replace(
    _0_6B,
    num_layers=36,
    hidden_size=4096,
    intermediate_size=12_288,
    num_heads=32,
    tie_embeddings=False,
)


def from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of `ModelConfig`."""
    common = common_from_hf(hf, biases=("attention_bias",))
    return common | sliding_from_hf(hf) | {"qk_norm": True}


def to_hf(config: ModelConfig) -> HFConfig:
    """Returns config.json."""
    return qwen2.to_hf(config) | {"attention_bias": config.out_bias}


def param_mapping(config: ModelConfig) -> dict[str, ParamMapping]:
    """Returns the tensors of each parameter: Llama's, and two head norms."""
    return decoder_mapping(config, QK_NORM)


FAMILY = Family(
    model_type="qwen3",
    architectures=("Qwen3ForCausalLM",),
    from_hf=from_hf,
    to_hf=to_hf,
    param_mapping=param_mapping,
    sizes={
        "Qwen3-0.6B": ModelSize(_0_6B, 151_936),
        "Qwen3-1.7B": ModelSize(_1_7B, 151_936),
        "Qwen3-8B": ModelSize(_8B, 151_936),
    },
)
