"""Tiny models of every family: Hugging Face's configs, and weights without a file.

Imported both with torch and with JAX. Windows are shorter than the rows, and so are the
lengths that scaling uses (`original_max_position_embeddings`).
"""

import zlib

import numpy as np

_SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 24,
    "sliding_window": 5,
    "sliding_window_pattern": 3,
    "num_hidden_layers": 4,
    "rope_theta": 10000.0,
    "rope_local_base_freq": 100.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "tie_word_embeddings": True,
}

# As on hubs: with the older layout of RoPE's fields.
CONFIGS: dict[str, dict] = {
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "rope_theta": 1000.0,
        "use_sliding_window": False,
        "sliding_window": 4,
        "max_window_layers": 3,
        "tie_word_embeddings": True,
    },
    "qwen2_sliding": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 1,
        "tie_word_embeddings": False,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 16,
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
    },
    "llama3": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "head_dim": 8,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 500.0,
        "rope_scaling": _LLAMA3,
        "tie_word_embeddings": True,
    },
    "deepseek_math": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_key_value_heads": 4,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
        "tie_word_embeddings": False,
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "sliding_window": 6,
        "tie_word_embeddings": False,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "head_dim": 16,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 20,
        "sliding_window": 5,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    },
    "gemma3": _GEMMA3,
}
CONFIGS = {family: _SIZES | config for family, config in CONFIGS.items()}

# Settings of some checkpoints of these families. The context before YaRN is
# shorter than the first row, and its ramp covers several pairs.
VARIANTS: dict[str, dict] = {
    "llama_yarn": CONFIGS["llama3"]
    | {
        "attention_bias": True,
        "mlp_bias": True,
        "head_dim": 16,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 22,
            "beta_fast": 3,
            "beta_slow": 0.05,
            "mscale": 0.7,
            "mscale_all_dim": 2.0,
        },
    },
    "llama_dynamic": CONFIGS["deepseek_math"]
    | {"attention_bias": True, "rope_scaling": {"type": "dynamic", "factor": 4.0}},
    "qwen2_yarn": CONFIGS["qwen2_sliding"]
    | {
        "rope_theta": 1000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "qwen3_yarn": CONFIGS["qwen3"]
    | {
        "attention_bias": True,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "beta_fast": 2.0,
            "beta_slow": 0.1,
            "truncate": False,
            "attention_factor": 1.3,
        },
    },
    "gemma3_yarn": CONFIGS["gemma3"]
    | {
        "attention_bias": True,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 20,
            "beta_fast": 2.0,
            "beta_slow": 0.02,
        },
    },
}
MODELS = CONFIGS | VARIANTS

LENGTHS = (23, 14)  # true tokens of each row, beyond any window
POSITIONS = ((0, 5, 12, 22), (0, 6, 9, 13))  # logits are kept here
NEW_TOKENS = 64


def tokens() -> list[np.ndarray]:
    """Returns the rows, without padding."""
    random = np.random.RandomState(7)
    return [random.randint(1, _SIZES["vocab_size"], n) for n in LENGTHS]


def padded(side: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows padded on one side to one more than the longest, and the mask.

    Padding is token 3, an ordinary token: only the mask marks it.
    """
    width = max(LENGTHS) + 1
    rows, mask = np.full((2, width), 3), np.zeros((2, width), bool)
    for row, seen, true in zip(rows, mask, tokens(), strict=True):
        at = slice(len(true)) if side == "right" else slice(width - len(true), None)
        row[at], seen[at] = true, True
    return rows, mask


def weight(name: str, shape: tuple[int, ...], *, seed: int) -> np.ndarray:
    """Returns the float32 weight of a Hugging Face name.

    Norm scales are around 1, or 2 in families that add 1 to them.
    """
    random = np.random.RandomState(zlib.crc32(f"{seed} {name}".encode()))
    noise = random.standard_normal(shape)
    weight = 1 + 0.2 * noise if "norm" in name else 0.3 * noise
    return weight.astype(np.float32)
