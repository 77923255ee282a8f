"""The finite-field world on a laptop: what RL does to easy, medium and hard problems.

A policy of 0.86M parameters is shown worked solutions in GF(7), evaluations and
inversions alike: chains of 2-5 steps by the strategy that fits, chains of 6 and 7 by
the toss of a coin, forward or backward, so that one of the two has to guess. Longer
chains it never sees. Before RL the short ones are easy, those of 6 and 7 steps medium
(it picks a strategy blindly), and at 8 and 9 it can only guess, at one in seven.

16 samples of each of 384 problems of 4-9 steps say which is which (hard below 0.3
right, for a guess is right 0.14 of the time; easy above 0.9). GRPO, rewarded by the
answer alone, asks half medium problems, a quarter easy, a quarter hard. Held-out
problems have 2-9 steps: RL must not unlearn 2 and 3, which SFT alone taught.

A temporal autoencoder of the policy before RL reads every update: its reasoning
features weigh tokens and stand in for the reward in all-wrong groups (docs/rfgo.md).

Command: bash launch/quickstart.sh [--config.seed=1 --workdir=runs/quickstart_1]

Measured on 2 CPU cores (AVX-512, 361 GFLOP/s in float32), JAX 0.10.2, seed 0, 256
held-out problems of 2-9 steps x 8 samples, gains paired by problem [95 % interval]:

    pass@1                         61.1 % -> 73.1 %, +12.1 points [8.4, 15.4]
    pass@8                         86.7 % -> 80.5 %,  -6.2 points [-11.4, -1.6]
    easy by 4 samples, on 4 more   95 % -> 98 %,  +2.9 [-1.4, 7.1]     111 problems
    medium                         57 % -> 86 %, +29.3 [17.5, 38.6]     58
    hard                           23 % -> 33 %,  +9.8 [0.8, 18.6]      87
    2 and 3 steps, SFT's alone     98 % -> 98 %,  +0.0 [-7.3, 6.8]      61

Alone on the machine, nothing compiled: 4 min 26 s in a fresh clone, installation
included; SFT 82 s, difficulty 8, autoencoders 43, RL 80, evaluations 6.
By length before RL: 97-100 % up to 5 steps, 57 and 48 % at 6 and 7, 12 and 6 % at 8 and
9; after it 98-99, 96 and 87, 14 and 5 %. The fitting strategy is chosen 74-75 % of the
time before and 98-100 % after. Of the pool's 384 problems 127 are easy, 146 medium, 111
hard. On hard problems 47 % of the advantage mass lies on right answers with wrong
steps at first and 42 % at last, where 50 % is all that right answers have: nearly every
success is luck. On medium ones it is 7 and 5 %. Worked golds of problems that RL asked
are no more likely than fresh ones (ratio of perplexities 0.96 [0.87, 1.06]). Of the 16
candidate features 2 are confirmed; of 235 features that were asked about, RL moves 12,
noise of equal drift 7, and one is claimed in one band.

These are figures of commit 7d46ad7. Seed 1 there: 62.4 % -> 73.7 %, +11 [8, 15]; easy
+1.8 [-2.1, 6.3], medium +23.3 [11.9, 33.7], hard +10.9 [1.9, 19.5], 2 and 3 steps -0.2
[-6.0, 5.6]; 5 of 16 candidates confirmed. Since then a seed draws other rollouts. Seed
0 at a33c0ba: 62.3 % -> 73.0 %, +10.8 [7.0, 14.4]; easy +0.2 [-5.1, 5.2], medium +30.6
[20.3, 38.4], hard +5.7 [-4.0, 14.8]; pass@8 91.0 -> 83.6 %, -7.4 [-12.3, -2.9]. It took
6 min 36 s on cores of 169 GFLOP/s, without the installation: SFT 123 s, difficulty 14,
autoencoders 79, RL 141, evaluations 11. The same figures came out at caf6e38. Seeds 1
and 2 at de5950c: 63.6 % -> 74.0 % and 59.3 % -> 69.3 %; over the three the gain is 10.4
points [9.6, 11.3] (t-interval), with train.staleness=1 10.6 [8.2, 13.1].

Four autoencoders of 256 latents, on 1,024 problems of the policy that asked 5-8 steps
(docs/log/2026-11.md): FVE 0.921 and 0.916, 0.943 and 0.939 without the contrast, alive
97-99 %. The other seed finds 126 of 250 latents that fire. Of 256 problems, half choose
16 candidates and half confirm 2-5 of them (50 ways to halve); of shuffled outcomes,
0.05 on average. On 512 other problems the activation correlates with the outcome by
0.53-0.58 within problems.

What failed on the way is in docs/log/2026-11.md.
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    Config,
    DifficultyConfig,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    RFGOConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.mixture import Mixture
from rlvr_jax.probe import ProbeSAEConfig, SAEProbeConfig
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig


def get_config() -> Config:
    """Returns the recipe."""
    known = (2, 3, 4, 5)  # lengths whose worked solutions never begin with a guess
    sampling = SamplingConfig(max_new_tokens=60)
    return Config(
        name="quickstart",
        task=FiniteFieldTask(
            modulus=7,
            sft=ChainMix(
                chain_lengths=(*known, 6, 7), direct_lengths=known, operand_decay=0.8
            ),
            train=ChainMix(chain_lengths=tuple(range(4, 10)), direct_lengths=(4, 5)),
            eval=ChainMix(chain_lengths=tuple(range(2, 10)), direct_lengths=known),
        ),
        model=ModelConfig(scale_embeddings=True),
        sft=SFTConfig(
            steps=320,
            batch_size=64,
            grad_accum_steps=2,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        difficulty=DifficultyConfig(
            num_samples=16, pool_size=384, hard_below=0.3, easy_above=0.9
        ),
        curriculum=Mixture(
            bands=("easy", "medium", "hard"), band_weights=(0.25, 0.5, 0.25)
        ),
        probe=SAEProbeConfig(
            layer=2,
            num_problems=256,
            num_reference_texts=128,
            log_every=20,
            sae=_autoencoder(),
        ),
        train=TrainConfig(
            steps=120,
            batch_size=16,
            group_size=8,
            sampling=sampling,
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=10),
            rfgo=RFGOConfig(lambda_w=0.5, lambda_p=0.1),
        ),
        eval=EvalConfig(
            num_problems=256,
            num_samples=8,
            num_gold_problems=128,
            sampling=sampling,
        ),
        checkpoint=CheckpointConfig(every=100),
        prompt_pad_multiple=32,
        completion_pad_multiple=30,
    )


def _autoencoder() -> ProbeSAEConfig:
    """Returns the T-SAE of the policy before RL: two seeds and their baselines."""
    return ProbeSAEConfig(
        architecture=SAEConfig(latents=256, k=16),
        optimizer=SAEOptimizerConfig(learning_rate=2e-3, warmup_steps=50),
        train=SAETrainConfig(
            steps=1600, num_seeds=2, threshold_start_step=200, threshold_decay=0.98
        ),
        batch_size=1024,
    )
