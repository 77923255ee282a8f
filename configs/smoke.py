"""Warm start, RL, evaluation, report within a minute on two cores: for a first look.

    python -m rlvr_jax.main --config=smoke --workdir=runs/smoke

The policy is too small and trains too briefly to learn anything.
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    Config,
    EvalConfig,
    LogConfig,
    ModelConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.tasks import ChainMix, FiniteFieldTask


def get_config() -> Config:
    """Returns the recipe."""
    chains = ChainMix(chain_lengths=(1, 2))
    return Config(
        name="smoke",
        task=FiniteFieldTask(modulus=5, sft=chains, train=chains, eval=chains),
        model=ModelConfig(
            num_layers=2,
            hidden_size=32,
            intermediate_size=64,
            num_heads=2,
            num_kv_heads=2,
            head_dim=16,
        ),
        sft=SFTConfig(steps=20, batch_size=32),
        train=TrainConfig(
            steps=6,
            batch_size=8,
            group_size=4,
            sampling=SamplingConfig(max_new_tokens=24),
        ),
        eval=EvalConfig(
            num_problems=16,
            num_samples=4,
            k=(1, 2, 4),
            batch_size=16,
            bootstrap_resamples=200,
            sampling=SamplingConfig(max_new_tokens=24),
        ),
        checkpoint=CheckpointConfig(every=5),
        log=LogConfig(rollouts_every=3, progress_every=5),
        prompt_pad_multiple=16,
        completion_pad_multiple=24,
    )
