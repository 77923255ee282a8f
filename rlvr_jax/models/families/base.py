"""The definition of a family of models, and the code that families share.

A family is one file: how config.json maps to `ModelConfig` and back, which tensor holds
which parameter, and the published sizes. Here config.json is given as transformers'
configuration class reads it, with that class's defaults filled in.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, get_args

from job_jax.schema import ConfigError, check, did_you_mean
from rlvr_jax.config import ModelConfig
from rlvr_jax.config.model import RopeScaling
from rlvr_jax.models.families.mapping import ParamMapping
from rlvr_jax.models.masks import expand_layer_types
from rlvr_jax.models.rope import yarn_magnitude

HFConfig = dict[str, Any]

ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# Each of these changes the function that the model computes. A family reads the ones
# that its class in transformers has; if another one is set, the checkpoint is refused.
_FUNCTION_CHANGING = ("attention_bias", "mlp_bias", "use_bidirectional_attention")
_ROPE_TYPES = ("default", *(t for t in get_args(RopeScaling) if t != "none"))


@dataclasses.dataclass(frozen=True)
class ModelSize:
    """The config of a published checkpoint, and V, the rows of its embedding."""

    model: ModelConfig
    vocab_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """Everything that is specific to one family of Hugging Face checkpoints.

    Args:
        model_type: `model_type` in config.json.
        architectures: class names in config.json's `architectures`; exports write the
            first.
        from_hf: returns the fields of `ModelConfig` that config.json sets.
        to_hf: returns config.json, without vocabulary and architecture.
        param_mapping: returns the tensors of each parameter, by its dotted path.
        sizes: published checkpoints, by the last part of their hub name.
        read_as: the `model_type` whose class in transformers reads config.json; "" for
            the family's own.
    """

    model_type: str
    architectures: tuple[str, ...]
    from_hf: Callable[[HFConfig], dict[str, Any]]
    to_hf: Callable[[ModelConfig], HFConfig]
    param_mapping: Callable[[ModelConfig], dict[str, ParamMapping]]
    sizes: Mapping[str, ModelSize] = dataclasses.field(default_factory=dict)
    read_as: str = ""


def common_from_hf(
    hf: HFConfig, *, activation: str = "hidden_act", biases: Collection[str] = ()
) -> dict[str, Any]:
    """Returns the fields of `ModelConfig` that all families read in the same way.

    `activation` is the key that names the MLP's activation. `biases` says which of
    attention_bias and mlp_bias the family has. Raises ConfigError on an unsupported
    setting that would change the function.
    """
    for name in _FUNCTION_CHANGING:
        if hf.get(name) and name not in biases:
            raise ConfigError(f"config.json: {name}={hf[name]!r} is not supported")
    if hf[activation] not in ACTIVATIONS:
        raise ConfigError(
            f"config.json: activation {hf[activation]!r} is not supported"
            f"{did_you_mean(hf[activation], ACTIVATIONS)}"
        )
    num_heads = hf["num_attention_heads"]
    fields = {
        "num_layers": hf["num_hidden_layers"],
        "hidden_size": hf["hidden_size"],
        "intermediate_size": hf["intermediate_size"],
        "num_heads": num_heads,
        "num_kv_heads": hf.get("num_key_value_heads") or num_heads,
        "head_dim": hf.get("head_dim") or hf["hidden_size"] // num_heads,
        "activation": ACTIVATIONS[hf[activation]],
        "norm_eps": hf["rms_norm_eps"],
        "tie_embeddings": hf["tie_word_embeddings"],
        "max_seq_len": hf["max_position_embeddings"],
    }
    if "attention_bias" in biases:
        has_bias = bool(hf["attention_bias"])
        fields |= {"qkv_bias": has_bias, "out_bias": has_bias}
    if "mlp_bias" in biases:
        fields["mlp_bias"] = bool(hf["mlp_bias"])
    return fields | _rope_from_hf(hf)


def sliding_from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns the fields of sliding layers: the shortest pattern, and the window."""
    types = tuple(t.removesuffix("_attention") for t in hf["layer_types"])
    if "sliding" not in types:
        return {"rope_local_theta": 0.0}
    period = next(
        n
        for n in range(1, len(types) + 1)
        if (types[:n] * len(types))[: len(types)] == types
    )
    return {"sliding_window": hf["sliding_window"], "layer_types": types[:period]}


def _rope_from_hf(hf: HFConfig) -> dict[str, Any]:
    """Returns RoPE's fields, and the context that YaRN reaches."""
    rope, local_theta = hf["rope_parameters"], 0.0
    has_layer_types = "full_attention" in rope
    if has_layer_types:
        local, rope = rope["sliding_attention"], rope["full_attention"]
        local_theta = local["rope_theta"]
        check(
            local["rope_type"] == "default",
            f"config.json: RoPE of type {local['rope_type']!r} in sliding layers is "
            "not supported; sliding layers are never scaled",
        )
    fields = {"rope_theta": rope["rope_theta"], "rope_local_theta": local_theta}
    kind, context = rope["rope_type"], hf["max_position_embeddings"]
    if kind not in _ROPE_TYPES:
        raise ConfigError(
            f"config.json: RoPE of type {kind!r} is not supported"
            f"{did_you_mean(kind, _ROPE_TYPES)}"
        )
    if kind == "dynamic":
        return fields | {
            "rope_scaling": kind,
            "rope_factor": rope["factor"],
            "rope_original_max_position": context,
        }
    if kind == "yarn":
        # transformers looks for it outside the settings of a layer type.
        check(
            not has_layer_types or rope.get("truncate", True),
            "config.json: truncate=false of full_attention is not supported; "
            "transformers does not read it there either",
        )
        return fields | _yarn_from_hf(rope, context)
    if kind == "default" or rope["factor"] == 1:
        return fields
    fields |= {"rope_scaling": kind, "rope_factor": rope["factor"]}
    if kind == "llama3":
        fields |= {
            "rope_low_freq_factor": rope["low_freq_factor"],
            "rope_high_freq_factor": rope["high_freq_factor"],
            "rope_original_max_position": rope["original_max_position_embeddings"],
        }
    return fields


def _yarn_from_hf(rope: HFConfig, context: int) -> dict[str, Any]:
    """Returns YaRN's fields. `context` is max_position_embeddings.

    Published configs give there the context either before or after YaRN;
    `max_seq_len` is the larger of this value and factor x the context before.
    """
    original = rope["original_max_position_embeddings"]
    factor = context / original if rope["factor"] is None else rope["factor"]
    attention = rope.get("attention_factor")
    above, below = rope.get("mscale"), rope.get("mscale_all_dim")
    if attention is None and above and below:
        attention = yarn_magnitude(factor, above) / yarn_magnitude(factor, below)
    check(
        attention is None or attention > 0,
        f"config.json: attention_factor={attention} of YaRN; it must be positive",
    )
    if factor == 1 and attention in (None, 1):
        return {}
    fields = {
        "rope_scaling": "yarn",
        "rope_factor": factor,
        "rope_original_max_position": original,
        "rope_truncate": bool(rope.get("truncate", True)),
        "rope_attention_factor": attention or 0.0,
        "max_seq_len": max(context, int(factor * original)),
    }
    # transformers reads 0 and null as the default.
    given = {name: rope.get(name) for name in ("beta_fast", "beta_slow")}
    return fields | {f"rope_{name}": value for name, value in given.items() if value}


def common_to_hf(config: ModelConfig) -> HFConfig:
    """Returns the keys of config.json that all families write in the same way."""
    activation = next(
        hf for hf, ours in ACTIVATIONS.items() if ours == config.activation
    )
    # Dynamic scaling begins beyond this context, so a run's maximum is wrong here.
    is_dynamic = config.rope_scaling == "dynamic"
    context = config.rope_original_max_position if is_dynamic else config.max_seq_len
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": activation,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling_to_hf(config),
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": context,
        "torch_dtype": config.param_dtype,
    }


def sliding_to_hf(config: ModelConfig) -> HFConfig:
    """Returns the keys of sliding layers: the type of every layer, and the window."""
    return {
        "sliding_window": config.sliding_window or None,
        "layer_types": [f"{t}_attention" for t in expand_layer_types(config)],
    }


def _rope_scaling_to_hf(config: ModelConfig) -> HFConfig | None:
    if config.rope_scaling == "none":
        return None
    scaling = {"rope_type": config.rope_scaling, "factor": config.rope_factor}
    if config.rope_scaling == "llama3":
        scaling |= {
            "low_freq_factor": config.rope_low_freq_factor,
            "high_freq_factor": config.rope_high_freq_factor,
            "original_max_position_embeddings": config.rope_original_max_position,
        }
    if config.rope_scaling == "yarn":
        scaling |= {
            "beta_fast": config.rope_beta_fast,
            "beta_slow": config.rope_beta_slow,
            "truncate": config.rope_truncate,
            "original_max_position_embeddings": config.rope_original_max_position,
        }
        if config.rope_attention_factor:
            scaling["attention_factor"] = config.rope_attention_factor
    return scaling
