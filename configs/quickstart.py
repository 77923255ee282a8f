"""The finite-field world on a laptop: what RL does to easy, medium and hard problems.

SFT shows a policy of 0.86M parameters worked solutions in GF(7), of evaluations and of
inversions. Chains of 2-5 steps are worked by the strategy that fits. For chains of 6
and 7 steps a coin picks forward or backward, so one of the two has to guess. It shows
no longer chains. Before RL the short chains are easy. Chains of 6 and 7 steps are
medium, because the policy picks a strategy blindly. At 8 and 9 steps it can only guess,
and one guess in seven is right.

16 samples of each of 384 problems of 4-9 steps set the bands: hard below 0.3 right
(because a guess is right 0.14 of the time), easy above 0.9. GRPO, rewarded by the
answer alone, trains on half medium, a quarter easy and a quarter hard problems.
Held-out problems have 2-9 steps: RL must not unlearn 2 and 3, which only SFT taught.

A temporal autoencoder of the policy before RL reads every update. It only watches; RL
is the same without it. configs/quickstart_rfgo.py also uses its features.

Command: bash launch/quickstart.sh [--config.seed=1 --workdir=runs/quickstart_1]

Measured on 2 CPU cores (AVX-512), JAX 0.10.2, seed 0, 256 held-out problems of 2-9
steps x 8 samples, gains paired by problem [95 % interval]:

    pass@1                         62.3 % -> 75.0 %, +12.8 points [9.1, 16.4]
    pass@8                         91.0 % -> 84.0 %,  -7.0 points [-11.7, -2.5]
    easy by 4 samples, on 4 more   95 % -> 98 %,  +2.5 [-1.9, 7.0]     111 problems
    medium                         59 % -> 90 %, +31.5 [21.5, 38.9]     58
    hard                           27 % -> 36 %,  +8.9 [-0.8, 18.3]     87

Seeds 1 and 2: 63.6 % -> 72.3 % and 59.3 % -> 69.6 %; pass@8 -5.1 [-9.8, -0.8] and
-9.0 [-14.0, -4.2]. Over the three seeds the gain is 10.6 points [5.5, 15.7]
(t-interval); with RFGO it was 10.4 [9.6, 11.3].

With nothing compiled it took 5 min 34 s in a fresh clone, of which the installation
took 31 s: SFT 105 s, difficulty 13, autoencoder 37, RL 111, evaluations 10.

By length before RL, pass@1 is 97-99 % up to 5 steps, 54 and 51 % at 6 and 7, 13 and
15 % at 8 and 9. After RL it is 98-99, 94 and 91, 12 and 20 %. The policy chooses the
fitting strategy 73-78 % of the time before RL and 99-100 % after. Of the pool's 384
problems 128 are easy, 150 medium and 106 hard. The worked golds of RL's train problems
are no more likely than fresh ones (ratio of perplexities 0.96 [0.88, 1.04]).

The autoencoder explains 93.8 % of the variance. If the policy reads its reconstruction
instead of its own stream, cross-entropy rises by 31 % (of 0.05 nats), so the doctor
raises `sae_unfaithful`. Trained for 1,600 steps, it explains 94.8 % and cross-entropy
rises by 24 to 27 %.

docs/log/2026-11.md has the attempts that failed.
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
            measure_overhead=False,  # it would compile a program without a probe
            sae=_autoencoder(),
        ),
        train=TrainConfig(
            steps=120,
            batch_size=16,
            group_size=8,
            sampling=sampling,
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=10),
            rfgo=RFGOConfig(lambda_w=0.0, lambda_p=0.0),  # the probe only watches
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
    """Returns the T-SAE of the policy before RL."""
    return ProbeSAEConfig(
        architecture=SAEConfig(latents=512, k=32),
        optimizer=SAEOptimizerConfig(learning_rate=2e-3, warmup_steps=50),
        train=SAETrainConfig(
            steps=800,
            no_contrast_baseline=False,
            threshold_start_step=200,
            threshold_decay=0.98,
        ),
        batch_size=1024,
    )
