"""Gemma 2: alternating windows, post-norms, soft caps, RMSNorm that scales by 1 + w."""

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
from rlvr_jax.models.families.mapping import POST_NORMS, ParamMapping, decoder_mapping

_2B = ModelConfig(
    family="gemma2",
    num_layers=26,
    hidden_size=2304,
    intermediate_size=9216,
    num_heads=8,
    num_kv_heads=4,
    head_dim=256,
    layer_types=("sliding", "full"),
    sliding_window=4096,
    query_pre_attn_scalar=256.0,
    attn_logit_softcap=50.0,
    final_logit_softcap=30.0,
    activation="gelu_tanh",
    rms_norm_unit_offset=True,
    use_post_norms=True,
    scale_embeddings=True,
    max_seq_len=8192,
)
_9B = dataclasses.replace(
    _2B,
    num_layers=42,
    hidden_size=3584,
    intermediate_size=14_336,
    num_heads=16,
    num_kv_heads=8,
)


def from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of `ModelConfig`."""
    return gemma_from_hf(hf) | {
        "attn_logit_softcap": hf["attn_logit_softcapping"] or 0.0,
    }


def gemma_from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of `ModelConfig` that Gemma 2 and Gemma 3 read alike."""
    return (
        common_from_hf(hf, activation="hidden_activation", biases=("attention_bias",))
        | sliding_from_hf(hf)
        | {
            "query_pre_attn_scalar": hf["query_pre_attn_scalar"],
            "final_logit_softcap": hf["final_logit_softcapping"] or 0.0,
            "rms_norm_unit_offset": True,
            "use_post_norms": True,
            "scale_embeddings": True,
        }
    )


def to_hf(config: ModelConfig) -> HFConfig:
    """Returns config.json."""
    common = common_to_hf(config)
    scalar = config.query_pre_attn_scalar or config.head_dim
    return (
        common
        | sliding_to_hf(config)
        | {
            "hidden_activation": common["hidden_act"],
            "attention_bias": config.out_bias,
            "query_pre_attn_scalar": int(scalar),
            "final_logit_softcapping": config.final_logit_softcap or None,
            "attn_logit_softcapping": config.attn_logit_softcap or None,
        }
    )


def param_mapping(config: ModelConfig) -> dict[str, ParamMapping]:
    """Returns the tensors of each parameter: Llama's, and norms after sublayers."""
    return decoder_mapping(config, POST_NORMS)


FAMILY = Family(
    model_type="gemma2",
    architectures=("Gemma2ForCausalLM",),
    from_hf=from_hf,
    to_hf=to_hf,
    param_mapping=param_mapping,
    sizes={
        "gemma-2-2b": ModelSize(_2B, 256_000),
        "gemma-2-9b": ModelSize(_9B, 256_000),
    },
)
