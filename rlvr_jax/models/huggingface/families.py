"""config.json <-> ModelConfig, for the families that one transformer computes.

A setting that would change the function and is not computed here is refused, never
dropped. Both layouts of RoPE's settings are read: `rope_theta` and `rope_scaling`
beside each other, and `rope_parameters` in one.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from job_jax.config_io import diff
from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config import ModelConfig
from rlvr_jax.config_model import LayerKind
from rlvr_jax.models.views import kinds

Dtype = Literal["float32", "bfloat16"]
Settings = dict[str, Any]

# What config.json may leave out: its family's own value holds.
_COMMON = {
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "sliding_window": None,
}
_GEMMA = _COMMON | {
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "head_dim": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "sliding_window": 4096,
}
_DEFAULTS: dict[str, Settings] = {
    "qwen2": _COMMON | {"max_window_layers": 28, "use_sliding_window": False},
    "qwen3": _COMMON | {"max_window_layers": 28, "use_sliding_window": False},
    "llama": _COMMON,
    "mistral": _COMMON | {"sliding_window": 4096},
    "gemma2": _GEMMA
    | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    "gemma3_text": _GEMMA
    | {
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window_pattern": 6,
        "final_logit_softcapping": None,
    },
}
_ARCHITECTURES = {
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma3ForConditionalGeneration": "gemma3_text",  # the text part of it
}
_ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# Set, each of these would compute something else.
_REFUSED = ("attention_bias", "mlp_bias", "use_bidirectional_attention")
# What a policy may change without being another function.
_FREE = (
    *("init_scale", "compute_dtype", "param_dtype", "layer_loop", "remat"),
    *("attention", "attention_chunk"),
)
_LLAMA3 = ("rope_original_length", "rope_low_turns", "rope_high_turns")


def text_settings(settings: Settings) -> Settings:
    """Returns the settings of the language model: `text_config`'s, if there is one.

    `model_type` is the family. Raises ConfigError on an architecture not computed here,
    naming the nearest that is.
    """
    named = settings.get("architectures") or []
    family = _ARCHITECTURES.get(named[0]) if named else settings.get("model_type")
    if family not in _DEFAULTS:
        what = named[0] if named else str(settings.get("model_type"))
        among = _ARCHITECTURES if named else _DEFAULTS
        raise ConfigError(
            f"config.json: architecture {what!r} is not supported"
            f"{did_you_mean(what, among)}"
        )
    inner = {**settings, **settings.get("text_config", {}), "model_type": family}
    inner.pop("text_config", None)
    return _DEFAULTS[family] | inner


def model_config(settings: Settings, *, dtype: Dtype) -> ModelConfig:
    """Returns the config of `text_settings`. Raises ConfigError."""
    for name in _REFUSED:
        if settings.get(name):
            raise ConfigError(f"config.json: {name}={settings[name]!r} is not computed")
    family, width = settings["model_type"], _needed(settings, "hidden_size")
    heads = _needed(settings, "num_attention_heads")
    gemma = family.startswith("gemma")
    act = settings["hidden_activation" if gemma else "hidden_act"]
    if act not in _ACTIVATIONS:
        raise ConfigError(
            f"config.json: activation {act!r} is not computed"
            f"{did_you_mean(act, _ACTIVATIONS)}"
        )
    rope, windows = _rope(settings), _windows(settings)
    cap = settings.get("attn_logit_softcapping") if family == "gemma2" else None
    return ModelConfig(
        layers=_needed(settings, "num_hidden_layers"),
        width=width,
        mlp_width=_needed(settings, "intermediate_size"),
        heads=heads,
        kv_heads=settings.get("num_key_value_heads") or heads,
        head_width=settings.get("head_dim") or width // heads,
        **(rope | windows if windows else rope | {"sliding_rope_base": 0.0}),
        qkv_bias=family == "qwen2",
        qk_norm=family in ("qwen3", "gemma3_text"),
        score_width=settings["query_pre_attn_scalar"] if gemma else 0.0,
        score_cap=cap or 0.0,
        logit_cap=(settings["final_logit_softcapping"] or 0.0) if gemma else 0.0,
        activation=_ACTIVATIONS[act],
        norm_eps=settings["rms_norm_eps"],
        norm_from_zero=gemma,
        post_norms=gemma,
        tie_embeddings=settings["tie_word_embeddings"],
        scale_embeddings=gemma,
        compute_dtype=dtype,
        param_dtype=dtype,
        max_length=_needed(settings, "max_position_embeddings"),
    )


def _needed(settings: Settings, name: str) -> Any:
    if name not in settings:
        raise ConfigError(f"config.json has no {name}{did_you_mean(name, settings)}")
    return settings[name]


def _rope(settings: Settings) -> Settings:
    """Returns RoPE's fields, of full and of sliding layers."""
    scaling = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    own_base = settings.get("rope_local_base_freq", 0.0)
    if "full_attention" in scaling:
        own_base = (scaling.get("sliding_attention") or {}).get("rope_theta", own_base)
        scaling = scaling["full_attention"]
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    rope = {
        "rope_base": scaling.get("rope_theta", settings["rope_theta"]),
        "sliding_rope_base": own_base,
    }
    if kind == "default" or scaling.get("factor") == 1:
        return rope
    if kind not in ("linear", "llama3"):
        raise ConfigError(
            f"config.json: RoPE of type {kind!r} is not computed"
            f"{did_you_mean(kind, ('default', 'linear', 'llama3'))}"
        )
    rope |= {"rope_scaling": kind, "rope_factor": scaling["factor"]}
    if kind == "llama3":
        rope |= {
            "rope_low_turns": scaling["low_freq_factor"],
            "rope_high_turns": scaling["high_freq_factor"],
            "rope_original_length": scaling["original_max_position_embeddings"],
        }
    return rope


def _windows(settings: Settings) -> Settings:
    """Returns which layers slide, as the shortest pattern, and how far they see."""
    count, family = settings["num_hidden_layers"], settings["model_type"]
    window, layers = settings["sliding_window"], range(count)
    if family in ("qwen2", "qwen3") and not settings["use_sliding_window"]:
        window = None
    if window is None or family == "llama":
        return {}
    if settings.get("layer_types") and family != "mistral":
        slides = [kind == "sliding_attention" for kind in settings["layer_types"]]
    elif family == "mistral":
        slides = [True] * count
    elif family in ("qwen2", "qwen3"):
        slides = [layer >= settings["max_window_layers"] for layer in layers]
    else:
        every = 2 if family == "gemma2" else settings["sliding_window_pattern"]
        slides = [bool((layer + 1) % every) for layer in layers]
    if not any(slides):
        return {}
    each: tuple[LayerKind, ...] = tuple("sliding" if one else "full" for one in slides)
    for length in range(1, count + 1):
        if (each[:length] * count)[:count] == each:
            break
    return {"window": window, "layer_kinds": each[:length]}


def hf_settings(
    config: ModelConfig, *, vocab_size: int, carried: Mapping[str, Any]
) -> Settings:
    """Returns config.json for a policy; settings in `carried` that it lacks go along.

    Raises ConfigError, naming the fields, where no architecture computes the policy.
    """
    family = _family(config)
    gemma = family.startswith("gemma")
    settings = {
        "architectures": [name for name, f in _ARCHITECTURES.items() if f == family][
            :1
        ],
        "model_type": family,
        "vocab_size": vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "rope_scaling": _scaling(config),
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": config.max_length,
        "torch_dtype": config.param_dtype,
    }
    acts = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    settings["hidden_act"] = acts[config.activation]
    if gemma:
        settings |= {
            "hidden_activation": acts[config.activation],
            "query_pre_attn_scalar": int(config.score_width or config.head_width),
            "final_logit_softcapping": config.logit_cap or None,
            "attn_logit_softcapping": config.score_cap or None,
        }
    if family == "gemma3_text":
        base = config.sliding_rope_base or config.rope_base
        settings["rope_local_base_freq"] = base
    if family != "llama":
        settings["sliding_window"] = config.window or None
    if family in ("qwen2", "qwen3"):
        settings["use_sliding_window"] = config.window > 0
        settings["max_window_layers"] = config.layers
    if family not in ("llama", "mistral"):
        settings["layer_types"] = [f"{kind}_attention" for kind in kinds(config)]
    read = model_config(text_settings(settings), dtype=config.param_dtype)
    if lines := diff(function_of(read), function_of(config)):
        raise ConfigError(
            f"no architecture of transformers computes this policy; the nearest, "
            f"{family}, would change model.{', model.'.join(lines)}"
        )
    replaced = ("rope_parameters", "text_config", "vision_config", "dtype")
    kept = {name: v for name, v in carried.items() if name not in replaced}
    return kept | settings


def _family(config: ModelConfig) -> str:
    """Returns the family that comes nearest to the config."""
    if config.norm_from_zero:
        return "gemma3_text" if config.qk_norm else "gemma2"
    if config.qkv_bias or config.qk_norm:
        return "qwen2" if config.qkv_bias else "qwen3"
    return "mistral" if config.window else "llama"


def _scaling(config: ModelConfig) -> Settings | None:
    if config.rope_scaling == "none":
        return None
    scaling = {"rope_type": config.rope_scaling, "factor": config.rope_factor}
    if config.rope_scaling == "llama3":
        scaling |= {
            "low_freq_factor": config.rope_low_turns,
            "high_freq_factor": config.rope_high_turns,
            "original_max_position_embeddings": config.rope_original_length,
        }
    return scaling


def function_of(config: ModelConfig) -> ModelConfig:
    """Returns the config of the same function, in one form, at default precision."""
    plain = ModelConfig()
    free = {name: vars(plain)[name] for name in _FREE}
    if config.rope_scaling != "llama3":
        free |= {name: vars(plain)[name] for name in _LLAMA3}
    sliding_base = config.sliding_rope_base or config.rope_base
    return dataclasses.replace(
        config,
        layer_kinds=kinds(config),
        score_width=config.score_width or config.head_width,
        sliding_rope_base=sliding_base if config.window else 0.0,
        **free,
    )
