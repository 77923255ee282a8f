"""A policy learns to use a tool: word problems and a calculator, minutes on a CPU.

    python -m rlvr_jax.main --config=calculator --workdir=runs/calculator

In the warm start, half of the worked solutions call the calculator. The other half
state the answer at once, which so small a policy cannot work out. RL rewards only
correct answers.

Measured on two busy CPU cores, seeds 0, 1, 2: two minutes each once compiled, three
more before. Held-out pass@1 47.7, 38.1, 43.6 % before RL, 91.6, 85.9, 86.7 % after.
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
    steps = (1, 2)
    task = WordProblemsTask(
        largest=99, sft_steps=steps, train_steps=steps, eval_steps=steps
    )
    sampling = SamplingConfig(max_new_tokens=32)
    return Config(
        name="calculator",
        task=task,
        environment=Calculator(
            max_turns=4, max_turn_tokens=8, largest_result=task.largest
        ),
        model=ModelConfig(
            num_layers=2,
            hidden_size=64,
            intermediate_size=128,
            num_heads=4,
            num_kv_heads=4,
            head_dim=16,
            max_seq_len=64,
        ),
        sft=SFTConfig(
            steps=400,
            batch_size=64,
            optimizer=OptimizerConfig(learning_rate=4e-3, schedule="cosine"),
        ),
        train=TrainConfig(
            steps=40,
            batch_size=16,
            group_size=8,
            optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=5),
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
        prompt_pad_multiple=16,
        completion_pad_multiple=24,
    )
