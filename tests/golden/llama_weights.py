"""Weights that two programs can make without a file between them."""

import zlib

import numpy as np

SIZES = {
    "layers": 2,
    "width": 32,
    "mlp_width": 48,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 8,
    "rope_base": 500.0,
    "norm_eps": 1e-5,
}
VOCAB_SIZE = 13
TOKENS = [[3, 1, 12, 7, 7, 0]]


def llama_weights(*, tied: bool) -> dict[str, np.ndarray]:
    """Returns every parameter by our path and in our layout, L first in the blocks."""
    L, D, F, H = (SIZES[n] for n in ("layers", "width", "mlp_width", "head_width"))
    N, K = SIZES["heads"], SIZES["kv_heads"]
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
    } | ({} if tied else {"head": (VOCAB_SIZE, D)})
    return {name: _weight(name, shape) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    normal = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    return 1.0 + 0.2 * normal if name.endswith("scale") else 0.3 * normal
