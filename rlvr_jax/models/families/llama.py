"""Llama 3 and its relatives: DeepSeek-Math has the same architecture."""

import dataclasses
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

_LLAMA3_8B = ModelConfig(
    family="llama",
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14_336,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    rope_theta=500_000.0,
    rope_scaling="llama3",
    rope_factor=8.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    max_seq_len=131_072,
)
_LLAMA32 = dataclasses.replace(
    _LLAMA3_8B, rope_factor=32.0, intermediate_size=8192, tie_embeddings=True
)
_DEEPSEEK_7B = ModelConfig(
    family="llama",
    num_layers=30,
    hidden_size=4096,
    intermediate_size=11_008,
    num_heads=32,
    num_kv_heads=32,
    head_dim=128,
    tie_embeddings=False,
    max_seq_len=4096,
)


def from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of `ModelConfig`."""
    return common_from_hf(hf, biases=("attention_bias", "mlp_bias"))


def to_hf(config: ModelConfig) -> HFConfig:
    """Returns config.json."""
    return common_to_hf(config) | {
        "attention_bias": config.out_bias,
        "mlp_bias": config.mlp_bias,
    }


FAMILY = Family(
    model_type="llama",
    architectures=("LlamaForCausalLM",),
    from_hf=from_hf,
    to_hf=to_hf,
    param_mapping=decoder_mapping,
    sizes={
        "Llama-3.2-1B": ModelSize(
            dataclasses.replace(_LLAMA32, num_layers=16, hidden_size=2048, head_dim=64),
            128_256,
        ),
        "Llama-3.2-3B": ModelSize(
            dataclasses.replace(
                _LLAMA32, num_layers=28, hidden_size=3072, num_heads=24
            ),
            128_256,
        ),
        "Llama-3.1-8B": ModelSize(_LLAMA3_8B, 128_256),
        "deepseek-math-7b": ModelSize(_DEEPSEEK_7B, 102_400),
    },
)
