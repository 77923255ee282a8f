"""Whether labels that the policy itself gets wrong teach, where the ratio can clip.

Question. 2506.10947 reports +24.1 points on MATH-500 for Qwen2.5-Math-7B, trained on
labels from a model's majority where that is wrong, and +29.1 from verdicts. Our first
test (configs/paper/one_change.py) paid for the answer one below the right one, which
the policy seldom gives, and made one update per batch, so nothing clipped. Here the
wrong label is an answer that the policy gives: the most frequent wrong one of the group
(rlvr_jax/rewards/built_in/plurality.py). Ours: the paper's labels are fixed before RL.

World, starts, problems, and four updates per batch with a clip of 20 % come from
configs/paper/coin_and_fifths.py.

Arms, from the same start of a seed and with the same random keys:
  wrong    pays for the group's most frequent wrong answer
  coin     pays at random: the control
  verdict  pays for right answers
Seeds. 25 to 29, which no run has used.

Primary outcome. `pass@1 gained` of `wrong`; Student's t over five seeds, two-sided,
5 %. Secondary: wrong minus coin and verdict minus coin, with Holm's correction; wrong
minus verdict; pass@8; groups without signal; pass@1 by fresh band.

Power, by stored results. Paid for the answer one below, the gain varied by 5.2
between five seeds (docs/results/one_change.md). Five seeds then find a gain of 8.7 with
80 % power. Verdicts gained 5.8 here (docs/results/coin_and_fifths.md), so a gain as
large as theirs could go unseen, and the published one could not.

What counts, with the 95 % interval of the primary outcome:
  reproduced    it lies above 0.
  contradicted  it lies below 0, or contains 0 and lies below 8.7.
  inconclusive  anything else.

Compute. 15 runs and five starts: about 65 CPU minutes.

Command: bash launch/reproduce.sh wrong_majority
Results: docs/findings/curricula.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Config, Experiment

_COIN_AND_FIFTHS = Path(__file__).with_name("coin_and_fifths.py")
_WRONG = "rlvr_jax.rewards.built_in.plurality:WrongPlurality"


def get_config() -> Config:
    """Returns the recipe of the coin and the fifths."""
    config = load_config(_COIN_AND_FIFTHS, Config)
    return dataclasses.replace(config, name="wrong_majority")


def get_experiment() -> Experiment:
    """Returns the three rewards, with four updates a batch."""
    of_coins = call_recipe(_COIN_AND_FIFTHS, "get_experiment", Experiment)
    coin, verdict = of_coins.arms["coin"], of_coins.arms["verdict"]
    paid = {**verdict.overrides, "train.reward.names": _WRONG}
    return dataclasses.replace(
        of_coins,
        question="Does a label that the policy itself gets wrong teach?",
        reference="2506.10947, Qwen2.5-Math-7B on MATH-500: wrong labels +24.1, "
        "a coin +21.4, verdicts +29.1",
        baseline="coin",
        seed_sd=5.2,
        seed_sd_source="gained by the answer one below, five seeds of one_change",
        seeds=tuple(range(25, 30)),
        arms={
            "wrong": dataclasses.replace(verdict, overrides=paid),
            "coin": coin,
            "verdict": verdict,
        },
    )
