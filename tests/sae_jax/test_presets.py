"""The T-SAE recipes use the published numbers, not our defaults.

The paper: https:

arxiv.org/abs/2511.05541. The code: train_temporal.py of AI4LIFE-GROUP/temporal-saes and
the defaults of the trainer that it calls.
"""

import pathlib

import pytest

from job_jax.command import load_config
from sae_jax.config import Config
from sae_jax.optimize import replicas

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
SHARED = {
    ("sae", "latents"): 16_384,
    ("sae", "k"): 20,
    ("sae", "group_fractions"): (0.2, 0.8),
    ("sae", "normalize"): False,
    ("loss", "auxk_coef"): 1 / 32,
    ("loss", "dead_after_tokens"): 10_000_000,
    ("loss", "temperature"): 1.0,
    ("loss", "mse_reduction"): "sum",
    ("loss", "positive_sparsity"): "own",
    ("loss", "contrast_block_size"): 0,
    ("optimizer", "learning_rate"): 3e-4,
    ("optimizer", "b1"): 0.9,
    ("optimizer", "b2"): 0.999,
    ("optimizer", "warmup_steps"): 1000,
    ("optimizer", "lr_decay_fraction"): 0.0,
    ("optimizer", "clip_norm"): 1.0,
    ("pairs", "batch_size"): 8192,
    ("train", "steps"): 200_000,
    ("train", "threshold_decay"): 0.999,
    ("train", "threshold_start_step"): 1000,
}
PUBLISHED = {
    "tsae_reference": SHARED
    | {
        ("loss", "alpha"): 0.1,
        ("loss", "similarity"): "dot",
        ("loss", "infonce_reduction"): "mean",
        # Half of 0.2 and 0.8, because the code averages the two weighted errors.
        ("loss", "group_weights"): (0.1, 0.4),
        ("pairs", "positive"): "random",
    },
    "tsae_paper": SHARED
    | {
        ("loss", "alpha"): 1.0,
        ("loss", "similarity"): "cosine",
        ("loss", "infonce_reduction"): "sum",
        ("loss", "group_weights"): (1.0, 1.0),
        ("pairs", "positive"): "previous",
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_has_the_published_numbers(name):
    config = load_config(CONFIGS / f"{name}.py", Config)
    found = {
        (section, field): getattr(getattr(config, section), field)
        for section, field in PUBLISHED[name]
    }
    assert found == PUBLISHED[name]
    assert [replica.name for replica in replicas(config)] == ["seed0"]
