"""Warm start, RL, evaluation, report within a minute on two cores: for a first look.

    python -m rlvr_jax.main --config=configs/smoke.py --workdir=runs/smoke

The policy is too small and too briefly trained to learn anything.
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    ChainMix,
    Config,
    EvalConfig,
    FiniteFieldConfig,
    LogConfig,
    ModelConfig,
    SamplingConfig,
    TrainConfig,
    WarmupConfig,
)


def get_config() -> Config:
    """Returns the recipe."""
    chains = ChainMix(steps=(1, 2))
    return Config(
        name="smoke",
        task=FiniteFieldConfig(modulus=5, warmup=chains, train=chains, eval=chains),
        model=ModelConfig(
            layers=2, width=32, mlp_width=64, heads=2, kv_heads=2, head_width=16
        ),
        warmup=WarmupConfig(steps=20, batch_size=32),
        train=TrainConfig(
            steps=6,
            prompts_per_step=8,
            samples_per_prompt=4,
            sampling=SamplingConfig(max_new_tokens=24),
        ),
        eval=EvalConfig(
            problems=16,
            samples_per_problem=4,
            k=(1, 2, 4),
            batch_size=16,
            bootstrap=200,
            sampling=SamplingConfig(max_new_tokens=24),
        ),
        checkpoint=CheckpointConfig(every=5),
        log=LogConfig(rollouts_every=3, progress_every=5),
        prompt_bucket=16,
        completion_bucket=24,
    )
