r"""Selection or improvement: GF(11) under permuted symbols, as arXiv 2606.13125 has it.

Every prompt begins with a map that says which symbol stands for which element, so the
arithmetic has to be done through it. SFT shows 2,048 worked solutions of 2-5 steps,
forward, backward or both ways; RL asks 1,024 problems of 6-9 steps in batches of 32
groups of 8, with KL coefficient 0.05 at temperature 0.7. The report gives P(strategy |
type) and P(correct | strategy, type): which strategy is chosen, and whether it is then
carried out.

Commands, the paper's starts FB, F and B:
    python -m rlvr_jax.main --config=configs/strategies.py --workdir=runs/fb
    python -m rlvr_jax.main --config=configs/strategies.py --workdir=runs/f \
        --config.task.sft.strategies=forward
    python -m rlvr_jax.main --config=configs/strategies.py --workdir=runs/b \
        --config.task.sft.strategies=backward
    python -m rlvr_jax.analysis compare runs/fb runs/f runs/b
RL on other lengths, on one type more than on the other, and in GF(13):
    --config.task.train.chain_lengths=2,3,4,5
    --config.task.train.type_weights=0.9,0.1
    --config.task.modulus=13

NOT RUN to its end: the stages were, for a few steps. Whether a policy of 1.3 million
parameters learns to read the map from 2,048 solutions is not known; the paper begins
with pretrained ones of 1.5 billion. Chance is 1 in 11.
"""

from rlvr_jax.config import (
    Config,
    EvalConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.tasks import ChainMix, FiniteFieldTask


def get_config() -> Config:
    """Returns the recipe."""
    asked = ChainMix(chain_lengths=(6, 7, 8, 9), num_problems=1024)
    return Config(
        name="strategies",
        task=FiniteFieldTask(
            modulus=11,
            symbols="permuted",
            sft=ChainMix(chain_lengths=(2, 3, 4, 5), num_problems=2048),
            train=asked,
            eval=ChainMix(chain_lengths=asked.chain_lengths),
        ),
        model=ModelConfig(num_layers=6, scale_embeddings=True),
        sft=SFTConfig(
            steps=400,
            batch_size=64,
            grad_accum_steps=2,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        train=TrainConfig(
            steps=160,
            batch_size=32,
            group_size=8,
            grad_accum_steps=2,
            sampling=SamplingConfig(max_new_tokens=72, temperature=0.7),
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=10),
            loss=LossConfig(kl_coef=0.05),
        ),
        eval=EvalConfig(
            num_problems=256,
            num_samples=8,
            sampling=SamplingConfig(max_new_tokens=72),
        ),
        prompt_pad_multiple=48,
        completion_pad_multiple=72,
    )
