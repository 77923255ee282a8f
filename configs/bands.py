r"""Three bands of difficulty in the finite-field world, and which of them teaches.

Evaluations in GF(7), one strategy, graded by length alone. SFT shows 2-6
steps, and 7-9 too rarely to be learned; RL and evaluation ask for 2-10. So the policy
knows some problems, slips on others, and has to guess the rest: one guess in seven is
right, and in a group of eight that lucky one is the lesson. 16 samples of each of 512
problems before RL say which is which: hard below 0.3 right, easy above 0.9.

Commands, an arm each, on any seed:
    python -m rlvr_jax.main --config=configs/bands.py --workdir=runs/medium_0
    python -m rlvr_jax.main --config=configs/bands.py --workdir=runs/hard_0 \
        --config.curriculum.band=hard
    python -m rlvr_jax.main --config=configs/bands.py --workdir=runs/uniform_0 \
        --config.curriculum.name=uniform
    python -m rlvr_jax.analysis compare runs/medium_0 runs/hard_0 runs/uniform_0

Measured on 2 CPU cores, JAX 0.10.2; arms of a seed share its SFT. pass@1 in % on
288 held-out problems of 2-10 steps x 8 samples, before RL and after 80 steps:

    seed   before   medium   uniform   easy   hard   hard - medium
    0      47.4     56.2     53.2      48.8   41.8   -14.5 [-18.0, -11.1]
    1      56.2     57.3     54.9      53.6   25.7   -31.6 [-36.6, -26.6]
    2      59.5     64.0     not run   60.0   49.2   -14.8 [-18.6, -11.3]

Intervals of a seed are over its problems, 95 %; docs/difficulty.md has those over seeds
and what the hard arm unlearns. A run takes about 7 minutes: SFT 190 s,
difficulty 30, RL 160-180, evaluations 18.
"""

from rlvr_jax.config import (
    Config,
    DifficultyConfig,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.mixture import Band
from rlvr_jax.tasks import ChainMix, FiniteFieldTask


def get_config() -> Config:
    """Returns the recipe."""
    shown = ChainMix(
        types=("evaluation",),
        strategies=("forward",),
        chain_lengths=(2, 3, 4, 5, 6, 7, 8, 9),
        chain_length_weights=(1.0, 1.0, 1.0, 0.5, 0.25, 0.06, 0.03, 0.015),
        operand_decay=0.8,
    )
    asked = ChainMix(
        types=("evaluation",),
        strategies=("forward",),
        chain_lengths=(2, 3, 4, 5, 6, 7, 8, 9, 10),
    )
    return Config(
        name="bands",
        task=FiniteFieldTask(modulus=7, sft=shown, train=asked, eval=asked),
        model=ModelConfig(scale_embeddings=True),
        sft=SFTConfig(
            steps=200,
            batch_size=64,
            grad_accum_steps=2,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        difficulty=DifficultyConfig(
            num_samples=16, pool_size=512, hard_below=0.3, easy_above=0.9
        ),
        curriculum=Band(band="medium"),
        train=TrainConfig(
            steps=80,
            batch_size=16,
            group_size=8,
            sampling=SamplingConfig(max_new_tokens=72),
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=10),
        ),
        eval=EvalConfig(
            num_problems=288,
            num_samples=8,
            batch_size=96,
            sampling=SamplingConfig(max_new_tokens=72),
        ),
        prompt_pad_multiple=48,
        completion_pad_multiple=72,
    )
