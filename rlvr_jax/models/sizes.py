"""The usual checkpoints' configs and vocabularies, by the end of their hub name.

`load_hf` reads these from the checkpoint itself; a recipe, a dry run or a compilation
for a machine that is not at hand takes them from here.
"""

import dataclasses
from typing import NamedTuple

from rlvr_jax.config import ModelConfig


class Size(NamedTuple):
    """A checkpoint's config, and V, its embedding's rows."""

    model: ModelConfig
    vocab_size: int


_QWEN2 = ModelConfig(
    layers=28,
    width=1536,
    mlp_width=8960,
    heads=12,
    kv_heads=2,
    head_width=128,
    rope_base=1_000_000.0,
    qkv_bias=True,
    max_length=131_072,
)
_QWEN2_7B = dataclasses.replace(
    _QWEN2, width=3584, mlp_width=18_944, heads=28, kv_heads=4, tie_embeddings=False
)
_QWEN3 = ModelConfig(
    layers=28,
    width=1024,
    mlp_width=3072,
    heads=16,
    kv_heads=8,
    head_width=128,
    rope_base=1_000_000.0,
    qk_norm=True,
    max_length=40_960,
)
_LLAMA3 = ModelConfig(
    layers=32,
    width=4096,
    mlp_width=14_336,
    heads=32,
    kv_heads=8,
    head_width=128,
    rope_base=500_000.0,
    rope_scaling="llama3",
    rope_factor=8.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    max_length=131_072,
)
_LLAMA32 = dataclasses.replace(
    _LLAMA3, rope_factor=32.0, mlp_width=8192, tie_embeddings=True
)
_DEEPSEEK = ModelConfig(
    layers=30,
    width=4096,
    mlp_width=11_008,
    heads=32,
    kv_heads=32,
    head_width=128,
    tie_embeddings=False,
    max_length=4096,
)
_MISTRAL = ModelConfig(
    layers=32,
    width=4096,
    mlp_width=14_336,
    heads=32,
    kv_heads=8,
    head_width=128,
    layer_kinds=("sliding",),
    window=4096,
    norm_eps=1e-5,
    tie_embeddings=False,
    max_length=32_768,
)
_GEMMA2 = ModelConfig(
    layers=26,
    width=2304,
    mlp_width=9216,
    heads=8,
    kv_heads=4,
    head_width=256,
    layer_kinds=("sliding", "full"),
    window=4096,
    score_width=256.0,
    score_cap=50.0,
    logit_cap=30.0,
    activation="gelu_tanh",
    norm_from_zero=True,
    post_norms=True,
    scale_embeddings=True,
    max_length=8192,
)
_GEMMA3 = dataclasses.replace(
    _GEMMA2,
    width=1152,
    mlp_width=6912,
    heads=4,
    kv_heads=1,
    rope_base=1_000_000.0,
    sliding_rope_base=10_000.0,
    layer_kinds=("sliding",) * 5 + ("full",),
    window=512,
    qk_norm=True,
    score_cap=0.0,
    logit_cap=0.0,
    max_length=32_768,
)

SIZES: dict[str, Size] = {
    "Qwen2.5-0.5B": Size(
        dataclasses.replace(
            _QWEN2,
            layers=24,
            width=896,
            mlp_width=4864,
            heads=14,
            head_width=64,
            max_length=32_768,
        ),
        151_936,
    ),
    "Qwen2.5-1.5B": Size(_QWEN2, 151_936),
    "Qwen2.5-7B": Size(_QWEN2_7B, 152_064),
    "Qwen2.5-Math-1.5B": Size(
        dataclasses.replace(_QWEN2, rope_base=10_000.0, max_length=4096), 151_936
    ),
    "Qwen2.5-Math-7B": Size(
        dataclasses.replace(_QWEN2_7B, rope_base=10_000.0, max_length=4096), 152_064
    ),
    "Qwen3-0.6B": Size(_QWEN3, 151_936),
    "Qwen3-1.7B": Size(
        dataclasses.replace(_QWEN3, width=2048, mlp_width=6144), 151_936
    ),
    "Qwen3-8B": Size(
        dataclasses.replace(
            _QWEN3,
            layers=36,
            width=4096,
            mlp_width=12_288,
            heads=32,
            tie_embeddings=False,
        ),
        151_936,
    ),
    "Llama-3.2-1B": Size(
        dataclasses.replace(_LLAMA32, layers=16, width=2048, head_width=64), 128_256
    ),
    "Llama-3.2-3B": Size(
        dataclasses.replace(_LLAMA32, layers=28, width=3072, heads=24), 128_256
    ),
    "Llama-3.1-8B": Size(_LLAMA3, 128_256),
    "deepseek-math-7b": Size(_DEEPSEEK, 102_400),
    "Mistral-7B-v0.1": Size(_MISTRAL, 32_000),
    "gemma-2-2b": Size(_GEMMA2, 256_000),
    "gemma-2-9b": Size(
        dataclasses.replace(
            _GEMMA2, layers=42, width=3584, mlp_width=14_336, heads=16, kv_heads=8
        ),
        256_000,
    ),
    "gemma-3-1b": Size(_GEMMA3, 262_144),
    "gemma-3-4b": Size(  # its text part
        dataclasses.replace(
            _GEMMA3,
            layers=34,
            width=2560,
            mlp_width=10_240,
            heads=8,
            kv_heads=4,
            rope_scaling="linear",
            rope_factor=8.0,
            window=1024,
            max_length=131_072,
        ),
        262_208,
    ),
}
