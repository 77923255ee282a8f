"""Qwen2 and Qwen2.5: Llama with biases on queries, keys and values."""

import dataclasses
from typing import Any

from rlvr_jax.config import ModelConfig
from rlvr_jax.models.families.base import (
    Family,
    HFConfig,
    ModelSize,
    common_from_hf,
    common_to_hf,
    sliding_from_hf,
    sliding_to_hf,
)
from rlvr_jax.models.families.mapping import decoder_mapping

_1_5B = ModelConfig(
    family="qwen2",
    num_layers=28,
    hidden_size=1536,
    intermediate_size=8960,
    num_heads=12,
    num_kv_heads=2,
    head_dim=128,
    rope_theta=1_000_000.0,
    qkv_bias=True,
    max_seq_len=131_072,
)
_0_5B = dataclasses.replace(
    _1_5B,
    num_layers=24,
    hidden_size=896,
    intermediate_size=4864,
    num_heads=14,
    head_dim=64,
    max_seq_len=32_768,
)
_7B = dataclasses.replace(
    _1_5B,
    hidden_size=3584,
    intermediate_size=18_944,
    num_heads=28,
    num_kv_heads=4,
    tie_embeddings=False,
)
_MATH_1_5B = dataclasses.replace(_1_5B, rope_theta=10_000.0, max_seq_len=4096)
_MATH_7B = dataclasses.replace(_7B, rope_theta=10_000.0, max_seq_len=4096)


def from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of `ModelConfig`."""
    return common_from_hf(hf) | sliding_from_hf(hf) | {"qkv_bias": True}


def to_hf(config: ModelConfig) -> HFConfig:
    """Returns config.json."""
    return (
        common_to_hf(config)
        | sliding_to_hf(config)
        | {
            "use_sliding_window": config.sliding_window > 0,
            "max_window_layers": config.num_layers,
        }
    )


FAMILY = Family(
    model_type="qwen2",
    architectures=("Qwen2ForCausalLM",),
    from_hf=from_hf,
    to_hf=to_hf,
    param_mapping=decoder_mapping,
    sizes={
        "Qwen2.5-0.5B": ModelSize(_0_5B, 151_936),
        "Qwen2.5-1.5B": ModelSize(_1_5B, 151_936),
        "Qwen2.5-7B": ModelSize(_7B, 152_064),
        "Qwen2.5-Math-1.5B": ModelSize(_MATH_1_5B, 151_936),
        "Qwen2.5-Math-7B": ModelSize(_MATH_7B, 152_064),
    },
)
