"""The quickstart with RFGO, and with four autoencoders to compare.

As configs/quickstart.py, and the features of the autoencoder weigh tokens and replace
the reward in all-wrong groups (docs/method/rfgo.md). The autoencoder is smaller. A
second seed shows which latents both seeds find, and each seed has a twin without the
contrast.

Command: python -m rlvr_jax.main --config=quickstart_rfgo --workdir=runs/quickstart_rfgo

Measured on 2 CPU cores (AVX-512, 361 GFLOP/s in float32), JAX 0.10.2, commit 7d46ad7,
seed 0, 256 held-out problems of 2-9 steps x 8 samples, gains paired by problem [95 %
interval]:

    pass@1                         61.1 % -> 73.1 %, +12.1 points [8.4, 15.4]
    pass@8                         86.7 % -> 80.5 %,  -6.2 points [-11.4, -1.6]
    easy by 4 samples, on 4 more   95 % -> 98 %,  +2.9 [-1.4, 7.1]     111 problems
    medium                         57 % -> 86 %, +29.3 [17.5, 38.6]     58
    hard                           23 % -> 33 %,  +9.8 [0.8, 18.6]      87
    2 and 3 steps, SFT's alone     98 % -> 98 %,  +0.0 [-7.3, 6.8]      61

Alone on the machine, with nothing compiled, it takes 4 min 26 s in a fresh clone,
installation included: SFT 82 s, difficulty 8, autoencoders 43, RL 80, evaluations 6.

By length before RL, pass@1 is 97-100 % up to 5 steps, 57 and 48 % at 6 and 7, 12 and
6 % at 8 and 9. After RL it is 98-99, 96 and 87, 14 and 5 %. The policy chooses the
fitting strategy 74-75 % of the time before RL and 98-100 % after. Of the pool's 384
problems 127 are easy, 146 medium and 111 hard.

On hard problems, right answers with wrong steps hold 47 % of the advantage mass at
first and 42 % at the end. Right answers can hold at most 50 %, so nearly every success
is luck. On medium problems they hold 7 and 5 %. The worked golds of RL's train problems
are no more likely than fresh ones (ratio of perplexities 0.96 [0.87, 1.06]). Of the 16
candidate features 2 are confirmed. Of 235 features that were tested, RL moves 12, noise
of equal drift moves 7, and one is claimed in one band.

Seed 1 at 7d46ad7: 62.4 % -> 73.7 %, +11 [8, 15]; easy +1.8 [-2.1, 6.3], medium +23.3
[11.9, 33.7], hard +10.9 [1.9, 19.5], 2 and 3 steps -0.2 [-6.0, 5.6]; 5 of 16 candidates
confirmed. Since then a seed draws other rollouts.

Seed 0 at a33c0ba: 62.3 % -> 73.0 %, +10.8 [7.0, 14.4]; easy +0.2 [-5.1, 5.2], medium
+30.6 [20.3, 38.4], hard +5.7 [-4.0, 14.8]; pass@8 91.0 -> 83.6 %, -7.4 [-12.3, -2.9].
It took 6 min 36 s on cores of 169 GFLOP/s, without the installation: SFT 123 s,
difficulty 14, autoencoders 79, RL 141, evaluations 11. The results at caf6e38 are the
same. Seeds 1 and 2 at de5950c: 63.6 % -> 74.0 % and 59.3 % -> 69.3 %. Over the three
seeds the gain is 10.4 points [9.6, 11.3] (t-interval). With train.staleness=1 it is
10.6 [8.2, 13.1].

Four autoencoders of 256 latents, on 1,024 problems of the policy that trained on 5-8
steps (docs/log/2026-11.md): FVE 0.921 and 0.916, without the contrast 0.943 and 0.939,
alive 97-99 %. Of 250 latents that fire, the other seed finds 126. Half of 256 problems
choose 16 candidates and the other half confirms 2-5 of them (50 ways to halve). With
shuffled outcomes it confirms 0.05 on average. On 512 other problems the activation
correlates with the outcome by 0.53-0.58 within problems.
"""

from pathlib import Path

from job_jax.command import load_config
from job_jax.config_io import override
from rlvr_jax.config import Config

_QUICKSTART = Path(__file__).with_name("quickstart.py")


def get_config() -> Config:
    """Returns the recipe."""
    changes = {
        "name": "quickstart_rfgo",
        "probe.measure_overhead": "true",
        "probe.sae.architecture.latents": "256",
        "probe.sae.architecture.k": "16",
        "probe.sae.train.steps": "1600",
        "probe.sae.train.num_seeds": "2",
        "probe.sae.train.no_contrast_baseline": "true",
        "train.rfgo.lambda_w": "0.5",
        "train.rfgo.lambda_p": "0.1",
    }
    return override(load_config(_QUICKSTART, Config), changes)
