"""The T-SAE as published: https://arxiv.org/abs/2511.05541, L_H + L_L + InfoNCE.

Cosine similarity without temperature, both directions of InfoNCE added, the previous
token as the positive, one contrast block over the whole batch, activations as they
are. Sizes, lengths and data are this library's defaults; set them on the command line.

Command: python -m sae_jax.train --config=configs/tsae_paper.py --workdir=DIR \
    --config.pairs.path=ACTIVATIONS

NOT RUN beyond ten steps: no published activations are at hand to compare with.
"""

from sae_jax.config import Config, LossConfig, OptimizerConfig, PairsConfig, SAEConfig


def get_config() -> Config:
    """Returns the recipe."""
    return Config(
        name="tsae_paper",
        sae=SAEConfig(topk_tolerance=0.0, normalize=False),
        loss=LossConfig(
            alpha=1.0,
            temperature=1.0,
            infonce_reduction="sum",
            contrast_block_size=0,
            positive_sparsity="own",
            mse_reduction="sum",
        ),
        optimizer=OptimizerConfig(lr_decay_fraction=0.0),
        pairs=PairsConfig(positive="previous"),
    )
