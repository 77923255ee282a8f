"""A custom reward: it pays for correct steps and does not read the gold answer.

    python -m rlvr_jax.main --config=own_reward --workdir=runs/own_reward

SFT shows chains of 2 and 3 steps in GF(3). A coin decides whether a chain is worked
forward or backward, so half of the worked solutions begin with a guess. The function
`shown` below is the only reward in RL.

Measured with five other programs on 2 CPU cores, in 5 to 7 minutes (2 min 12 s of
processor time), JAX 0.10.2; 128 held-out problems x 4 samples, gains paired by problem
[95 % interval]:

    seed 0   pass@1 46.5 % -> 91.2 %, +44.7 points [36.7, 51.6]
    seed 1          60.9 % -> 96.5 %, +35.5 points [28.6, 41.5]
    seed 2          46.9 % -> 83.8 %, +36.9 points [29.0, 43.8]

A first version paid for correct steps with any answer after them. RL exploited it: in
seed 1 the policy wrote correct steps and then always the same answer
(docs/log/2026-11.md).
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    Config,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tasks.finite_field.traces import parse_trace

MODULUS = 3


def shown(problem, completion):
    """Returns 1 if correct steps lead from the given values to the answer, else 0."""
    trace = parse_trace(problem.prompt, completion, modulus=MODULUS)
    if trace.first_error is not None or not trace.consistent_start:
        return 0.0
    *_, result, _, answer = completion.split()  # ... = e2 answer e2
    return float(trace.answer == answer == result)


def get_config() -> Config:
    """Returns the recipe."""
    chains = ChainMix(chain_lengths=(2, 3), operand_decay=0.8)
    sampling = SamplingConfig(max_new_tokens=26)
    return Config(
        name="own_reward",
        task=FiniteFieldTask(modulus=MODULUS, sft=chains, train=chains, eval=chains),
        model=ModelConfig(scale_embeddings=True),
        sft=SFTConfig(
            steps=120,
            batch_size=64,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        train=TrainConfig(
            steps=50,
            batch_size=16,
            group_size=8,
            reward=RewardConfig(names=("own_reward:shown",), weights=(1.0,)),
            sampling=sampling,
            optimizer=OptimizerConfig(learning_rate=3e-4, warmup_steps=5),
        ),
        eval=EvalConfig(
            num_problems=128, num_samples=4, batch_size=64, sampling=sampling
        ),
        checkpoint=CheckpointConfig(every=100),
        prompt_pad_multiple=32,
        completion_pad_multiple=26,
    )
