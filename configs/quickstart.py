"""The finite-field world on a laptop: learn two strategies, then learn to choose."""

from rlvr_jax.config import (
    ChainMix,
    CheckpointConfig,
    Config,
    EvalConfig,
    FiniteFieldConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    TrainConfig,
    WarmupConfig,
)


def get_config() -> Config:
    """Returns the recipe."""
    longer = (5, 6, 7, 8)
    return Config(
        name="quickstart",
        task=FiniteFieldConfig(
            modulus=7,
            warmup=ChainMix(
                steps=(2, 3, 4, 5, 6, 7, 8),
                step_weights=(1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5),
                operand_decay=0.8,
            ),
            train=ChainMix(steps=longer),
            eval=ChainMix(steps=longer),
        ),
        model=ModelConfig(scale_embeddings=True),
        warmup=WarmupConfig(
            steps=320,
            batch_size=64,
            micro_batches=2,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        train=TrainConfig(
            steps=160,
            prompts_per_step=16,
            samples_per_prompt=8,
            sampling=SamplingConfig(max_new_tokens=60),
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=10),
        ),
        eval=EvalConfig(
            problems=256,
            samples_per_problem=8,
            sampling=SamplingConfig(max_new_tokens=60),
        ),
        checkpoint=CheckpointConfig(every=100),
        prompt_bucket=32,
        completion_bucket=30,
    )
