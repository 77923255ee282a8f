"""Two controls on medium problems: other fifths of the tokens, and a coin that clips.

Question 1. In docs/findings/curricula.md the fifth of the tokens of highest entropy
teaches as much as all (2506.01939). Does any fifth? Arms `lowest` and `random` train as
many other tokens, `medium` trains all.
Question 2. docs/findings/random_reward.md tested a coin with one update a batch: the
ratio is 1 and nothing clips. 2506.10947 says that a coin teaches through the clip. Here
a batch has four updates. Arms `coin` and `coin_tight` clip the ratio at 20 % and at
5 %, `coin_unclipped` does not; `verdict` and `plurality` clip at 20 %. `plurality` pays
the group's most frequent answer, right or wrong.

World, starts and problems come from configs/paper/inverted_u.py, medium band.
Seeds. 20 to 24, which no run has used.

Pilot, on a start of another experiment, of which only the clip was read: in the first
15 steps a bound of 20 % clips 0.2 % of the tokens, one of 5 % clips 0.7 %. Most tokens
are certain, so their ratio stays at 1.

Primary outcome. `pass@1 gained`, paired by seed, Student's t, two-sided, 5 %:
  1. highest minus random, and highest minus lowest, with Holm's correction;
  2. coin minus coin_unclipped, and coin_tight minus coin_unclipped, with Holm's.
Secondary: highest minus medium, verdict and plurality minus coin_unclipped, entropy at
the end, pass@8, pass@1 by fresh band.

Power, by stored results. highest minus medium varied by 1.7 points between five seeds
(docs/results/one_change.md): five seeds find 2.9 with 80 % power. For two coins nothing
is stored. One coin varied by 5.3 between seeds; two that are independent would vary by
7.5, and five seeds would find 12.7.

What counts, with 95 % intervals:
  1. reproduced    highest minus medium lies within -3 and 3, and both differences of 1
                   are above 0 after Holm.
     in shape      highest minus medium lies within -3 and 3, and only one is above 0.
     contradicted  highest minus random, or highest minus lowest, lies below 3 and
                   contains 0, or lies below 0: another fifth teaches about as much.
     inconclusive  anything else.
     If `contradicted` and another verdict hold, it is `contradicted`.
  2. reproduced    coin gains, with an interval above 0, and ends above coin_unclipped
                   after Holm.
     in shape      coin or coin_tight ends above coin_unclipped after Holm.
     contradicted  both differences of 2 lie below 12.7 and contain 0, or lie below 0.
     inconclusive  anything else.

Compute. 45 runs and 5 starts, about 140 CPU minutes.

Command: bash launch/reproduce.sh coin_and_fifths
`python -m rlvr_jax.analysis experiment runs/paper/coin_and_fifths` adds Holm's
correction over the two differences of a question:
    --arms=random,lowest
    --arms=coin,coin_tight --baseline=coin_unclipped
Results: docs/findings/curricula.md and random_reward.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment, Overrides

_INVERTED_U = Path(__file__).with_name("inverted_u.py")


def get_config() -> Config:
    """Returns the recipe: RL on the medium band, with 16 samples in evaluations."""
    config = load_config(_INVERTED_U, Config)
    return dataclasses.replace(
        config,
        name="coin_and_fifths",
        eval=dataclasses.replace(config.eval, num_samples=16),
    )


def get_experiment() -> Experiment:
    """Returns the fifths of the tokens, and the rewards with four updates a batch."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    return dataclasses.replace(
        of_bands,
        question="Does any fifth of the tokens teach, and does a coin that clips?",
        reference="2506.01939 on Qwen3-8B, 2506.10947 on Qwen2.5-Math-7B",
        outcomes=(
            "pass@1 gained",
            "pass@1 before RL",
            "pass@8 gained",
            "pass@1 gained, easy, fresh",
            "pass@1 gained, medium, fresh",
            "pass@1 gained, hard, fresh",
            "entropy",
            "completion length",
            "reward gained",
            "groups without signal",
        ),
        corrected=("pass@1 gained",),
        baseline="highest",
        seed_sd=1.7,
        seed_sd_source="highest minus medium, five seeds of one_change",
        seeds=tuple(range(20, 25)),
        arms={
            name: Arm(overrides=overrides, start="start@0")
            for name, overrides in (_fifths() | _four_updates()).items()
        },
        # Four updates of a batch of 4 would have one group each, for two devices.
        reduced={**of_bands.reduced, "train.batch_size": "8"},
    )


def _fifths() -> dict[str, Overrides]:
    """Returns the overrides of the arms of question 1."""
    fifth = {
        "train.loss.top_entropy_quantile": "0.2",
        "train.old_logprobs": "trainer",
    }
    choice = "train.loss.token_choice"
    return {
        "highest": fifth,
        "lowest": {**fifth, choice: "lowest_entropy"},
        "random": {**fifth, choice: "random"},
        "medium": {},
    }


def _four_updates() -> dict[str, Overrides]:
    """Returns the overrides of the arms of question 2."""
    reward, four = "train.reward.names", {"train.num_minibatches": "4"}

    def clip(low: str, high: str) -> Overrides:
        return {"train.loss.clip_low": low, "train.loss.clip_high": high}

    coin = {**four, reward: "random"}
    return {
        "coin_unclipped": {**coin, **clip("1", "1e9")},
        "coin": coin,
        "coin_tight": {**coin, **clip("0.05", "0.05")},
        "verdict": four,
        "plurality": {**four, reward: "plurality"},
    }
