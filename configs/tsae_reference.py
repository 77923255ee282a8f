r"""The T-SAE as its authors released it: AI4LIFE-GROUP/temporal-saes, same numbers.

Raw dot products; half the sum of both directions of InfoNCE; weights of 0.2 and 0.8
before the mean of the two nested errors (0.1 and 0.4 here); a random earlier token as
the positive. Loss terms, gradients and the parameters after ten steps equal the
released code's on small goldens (tests/golden/make_tsae_goldens.py). Sizes and lengths
come from its training script: 16,384 latents, k 20, 200,000 steps of 8,192 pairs.

Three things remain ours: tokens above 10 times the median norm are left out, a share of
the documents is held out, and the threshold is calibrated on them at the end.

Command: python -m sae_jax.train --config=tsae_reference --workdir=DIR \
    --config.pairs.path=ACTIVATIONS

Without its contrastive flag the released code trains another loss. To train that one,
set --config.loss.contrast=l1_cosine --config.loss.alpha=0.02 (0.1 of theirs times the
first group's weight).

NOT RUN beyond the goldens' ten steps.
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
        name="tsae_reference",
        sae=SAEConfig(latents=16_384, k=20, topk_tolerance=0.0, normalize=False),
        loss=LossConfig(
            alpha=0.1,
            similarity="dot",
            temperature=1.0,
            infonce_reduction="mean",
            contrast_block_size=0,
            positive_sparsity="own",
            mse_reduction="sum",
            group_weights=(0.1, 0.4),
        ),
        optimizer=OptimizerConfig(lr_decay_fraction=0.0),
        pairs=PairsConfig(positive="random", batch_size=8192),
        train=TrainConfig(steps=200_000, no_contrast_baseline=False),
    )
