"""A policy that learns to use a tool: word problems and a calculator, minutes on a CPU.

    python -m rlvr_jax.main --config=configs/calculator.py --workdir=runs/calculator

Half of the worked solutions of the warm start call the calculator, half state the
answer at once, which a policy this small cannot know. RL rewards correct answers alone.
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    Config,
    EvalConfig,
    LogConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.environments import Calculator
from rlvr_jax.tasks import WordProblemsTask


def get_config() -> Config:
    """Returns the recipe."""
    task = WordProblemsTask(largest=199)
    sampling = SamplingConfig(max_new_tokens=48)
    return Config(
        name="calculator",
        task=task,
        environment=Calculator(
            max_turns=5, max_turn_tokens=8, largest_result=task.largest
        ),
        model=ModelConfig(
            num_layers=2,
            hidden_size=96,
            intermediate_size=192,
            num_heads=4,
            num_kv_heads=4,
            head_dim=24,
            max_seq_len=96,
        ),
        sft=SFTConfig(
            steps=300,
            batch_size=64,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        train=TrainConfig(
            steps=60,
            batch_size=16,
            group_size=8,
            optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=5),
            sampling=sampling,
        ),
        eval=EvalConfig(
            num_problems=128,
            num_samples=4,
            batch_size=32,
            sampling=sampling,
        ),
        checkpoint=CheckpointConfig(every=100),
        log=LogConfig(rollouts_every=20),
        prompt_pad_multiple=48,
        completion_pad_multiple=48,
    )
