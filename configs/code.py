r"""Programs graded by unit tests in a sandbox: RL fixes what wrong examples taught.

A policy of 0.6M parameters writes the body of `def f ( x , b ) :` from a description
of one to four phrases, in a closed vocabulary of 44 words (docs/use/code.md):

    half up , at most 9 .
    x = ( x + 1 ) // 2 ; x = min ( x , 9 ) ; return x

Some phrases have a twin (`half up` and `half down`, `at most` and `at least`, ...). In
four of ten cases the SFT programs take the wrong twin. GRPO is rewarded by six unit
tests alone. The policy never sees their inputs and outputs.

Command: python -m rlvr_jax.main --config=code --workdir=runs/code

Measured on 2 CPU cores, JAX 0.10.2, 128 held-out problems x 8 samples, gains paired by
problem [95 % interval]:

    pass@1   seed 0   42.8 % -> 78.2 %, +35.4 points [27.9, 42.2]
             seed 1   40.6 % -> 73.3 %, +32.7 [24.7, 39.8]
             seed 2   42.6 % -> 68.0 %, +25.4 [18.2, 31.5]
             mean                       +31.2 [18, 44], a t-interval of three seeds
    pass@8   81.2 -> 90.6 %, 82.8 -> 89.8 %, 83.6 -> 82.0 %
    by twins in the program, seed 0: none 93 -> 97 %, one 59 -> 90, two 26 -> 78, three
    8 -> 48

None of the 10,240 verdicts of RL is unverified. Two runs of seed 0 agree bit for bit.
A run took 488 to 697 s while seven other jobs used the same cores (SFT 125-206 s, RL
259-467, evaluations 21-54). We did not measure it alone.
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
