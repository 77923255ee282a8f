"""The inputs of the T-SAE goldens: small, seeded, plain NumPy."""

import numpy as np

BATCH, WIDTH, LATENTS, K = 12, 6, 15, 2  # B, D, Z
GROUPS = (0.2, 0.8)  # 3 and 12 latents
STEPS, WARMUP, DECAY_SHARE = 10, 3, 0.2
LEARNING_RATE = 0.01
THRESHOLD_START, THRESHOLD_DECAY = 2, 0.9
# `silent` latents have not fired for long before the first step. A latent is dead after
# two batches of tokens, or after one; then more are dead than a row of AuxK takes.
CASES = {
    "infonce": {"contrastive": True, "silent": (), "dead_after": 24},
    "infonce_dead": {
        "contrastive": True,
        "silent": (1, 4, 6, 7, 9, 13),
        "dead_after": 12,
    },
    "l1_cosine_dead": {"contrastive": False, "silent": (5, 12), "dead_after": 24},
}


def weights() -> dict[str, np.ndarray]:
    """Returns a dictionary with unit rows and rare latents for CASES."""
    rng = np.random.default_rng(7)
    decoder = rng.normal(size=(LATENTS, WIDTH))
    decoder /= np.linalg.norm(decoder, axis=1, keepdims=True)
    encoder = decoder.T + 0.1 * rng.normal(size=(WIDTH, LATENTS))
    bias = 0.1 * rng.normal(size=LATENTS)
    bias[[1, 4, 5, 6, 7, 9, 12, 13]] -= 0.8
    named = {"encoder": encoder, "encoder_bias": bias, "decoder": decoder}
    return {name: array.astype(np.float32) for name, array in named.items()}


def batches() -> np.ndarray:
    """Returns [STEPS, BATCH, 2, WIDTH]: tokens and similar partners."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(STEPS, BATCH, 1, WIDTH)) + np.linspace(-1.0, 1.0, WIDTH)
    partner = 0.7 * x + 0.5 * rng.normal(size=x.shape)
    return np.concatenate([x, partner], axis=2).astype(np.float32)


def tokens_since_fired(latents: tuple[int, ...]) -> np.ndarray:
    """Returns tokens since each latent fired before the first step."""
    counts = np.zeros(LATENTS, np.int32)
    counts[list(latents)] = 1000
    return counts
