r"""Programs graded by unit tests in a jail: execution mends what examples got wrong.

A policy of 0.6M parameters writes the body of `def f ( x , b ) :` that it is told in
one to four phrases, in a closed vocabulary of 44 words (docs/code.md):

    half up , at most 9 .
    x = ( x + 1 ) // 2 ; x = min ( x , 9 ) ; return x

SFT shows it programs by a hand that takes each twin (`half up` for `half down`, `at
most` for `at least`, ...) for the other four times in ten. GRPO is rewarded by six unit
tests alone, whose inputs and outputs the policy never reads.

Command: python -m rlvr_jax.main --config=configs/code.py --workdir=runs/code
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    Config,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.tasks import ProgramsTask


def get_config() -> Config:
    """Returns the recipe."""
    sampling = SamplingConfig(max_new_tokens=48)
    return Config(
        name="code",
        task=ProgramsTask(num_steps=(1, 2, 3, 4)),
        model=ModelConfig(num_layers=3, scale_embeddings=True),
        sft=SFTConfig(
            steps=120,
            batch_size=64,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        train=TrainConfig(
            steps=80,
            batch_size=16,
            group_size=8,
            sampling=sampling,
            optimizer=OptimizerConfig(learning_rate=4e-4, warmup_steps=5),
        ),
        eval=EvalConfig(num_problems=128, num_samples=8, sampling=sampling),
        checkpoint=CheckpointConfig(every=100),
        prompt_pad_multiple=16,
        completion_pad_multiple=48,
    )
