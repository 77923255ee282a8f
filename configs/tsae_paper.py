r"""The T-SAE as published: https://arxiv.org/abs/2511.05541, L_H + L_L + InfoNCE.

Cosine similarity without temperature; the sum of both directions of InfoNCE; the
previous token as the positive; one contrast block over the whole batch; activations are
not normalized; 16,384 latents, k 20. The paper leaves the lengths open. We take them
from the authors' script (configs/tsae_reference.py).

Command: python -m sae_jax.train --config=tsae_paper --workdir=DIR \
    --config.pairs.path=ACTIVATIONS

NOT RUN beyond ten steps: we have no published activations to compare with.
"""

from sae_jax.config import (
    Config,
    LossConfig,
    OptimizerConfig,
    PairsConfig,
    SAEConfig,
    TrainConfig,
)


def get_config() -> Config:
    """Returns the recipe."""
    return Config(
        name="tsae_paper",
        sae=SAEConfig(latents=16_384, k=20, topk_tolerance=0.0, normalize=False),
        loss=LossConfig(
            alpha=1.0,
            temperature=1.0,
            infonce_reduction="sum",
            contrast_block_size=0,
            positive_sparsity="own",
            mse_reduction="sum",
        ),
        optimizer=OptimizerConfig(lr_decay_fraction=0.0),
        pairs=PairsConfig(positive="previous", batch_size=8192),
        train=TrainConfig(steps=200_000, no_contrast_baseline=False),
    )
