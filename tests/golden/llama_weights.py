"""Weights that two programs can compute without sharing a file."""

import zlib

import numpy as np

SIZES = {
    "num_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "rope_theta": 500.0,
    "norm_eps": 1e-5,
}
VOCAB_SIZE = 13
TOKENS = [[3, 1, 12, 7, 7, 0]]


def llama_weights(*, tied: bool) -> dict[str, np.ndarray]:
    """Returns parameters by our path, in our layout: L first in the blocks."""
    L, D, F, H = (
        SIZES[n] for n in ("num_layers", "hidden_size", "intermediate_size", "head_dim")
    )
    N, K = SIZES["num_heads"], SIZES["num_kv_heads"]
    shapes = {
        "embedding": (VOCAB_SIZE, D),
        "blocks.attention_norm.scale": (L, D),
        "blocks.query": (L, D, N, H),
        "blocks.key": (L, D, K, H),
        "blocks.value": (L, D, K, H),
        "blocks.out": (L, N, H, D),
        "blocks.mlp_norm.scale": (L, D),
        "blocks.gate": (L, D, F),
        "blocks.up": (L, D, F),
        "blocks.down": (L, F, D),
        "final_norm.scale": (D,),
    } | ({} if tied else {"lm_head": (VOCAB_SIZE, D)})
    return {name: _weight(name, shape) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    seed_name = {"lm_head": "head"}.get(name, name)  # as for the frozen logits
    seed = zlib.crc32(seed_name.encode())
    normal = np.random.RandomState(seed).standard_normal(shape)
    return 1.0 + 0.2 * normal if name.endswith("scale") else 0.3 * normal
