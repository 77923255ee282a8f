"""Which advantages teach from over-hard problems: nine changes of GRPO, one start.

Question. On the hard band of configs/paper/inverted_u.py most right answers are luck,
and GRPO pays the rarest successes most. Which published rule, reward or way of sampling
harms less there, and how much of its pay lies on wrong steps? This world checks
every step, so the share is exact.

Arms, all RL on the hard band from the same starts with the same random keys:
  grpo             the baseline: (reward - mean) / std
  dr_grpo          without the division by the std and by the length (2503.20783)
  rloo             a completion's reward minus the mean of the others (2402.14740)
  positive_only    advantages above 0 (2506.01347; our reading is group-relative)
  negative_only    advantages below 0 (the same)
  sign_balance     the sign of an advantage, balanced (2609.04063, as read by us)
  asymmetric       advantages above 0 times 0.1 (2506.01347)
  incorrect_again  problems that a group failed are sampled again (2609.13443, as read
                   by us); it samples up to four times as many completions
  plurality        the group's most frequent answer counts as right
  worked           the oracle: pays for right answers with right steps alone
Seeds. 10 to 15, the first six of configs/paper/luck_dose.py; only that experiment has
used them. The plan had eight, to 17. We cut it before any outcome was seen, because a
first try was lost with its machine and eight would have taken too long.

Primary outcomes, each an arm minus grpo, paired by seed; Student's t, two-sided, 5 %,
with Holm's correction over the nine arms:
  1. `pass@1 gained, hard, fresh`: what the trained band gains;
  2. `pass@1 gained, easy, fresh`: prior capability, as inverted_u measures it, on
     problems that were solved before RL. No arm trains on them;
  3. `positive mass on wrong steps`: of the advantages above 0, the share on right
     answers with a wrong or missing step. negative_only has none.
Secondary: `mass on wrong steps` of both signs, `positive mass on wrong answers`,
pass@1, pass@8 and entropy at the end, and at equal weight movement. Rules move the
weights at different speeds, and no fork can know the step at which two runs have moved
as far. So runs keep checkpoints and are evaluated every 20 steps, and after the runs
    python -m rlvr_jax.analysis geometry DIR/{grpo,rloo,...}/seed_*
reads each run at the distance that the slowest run of its seed reached, by
interpolation between checkpoints.

Power, by stored results: the standard deviation between seeds of an arm minus hard, for
five arms of docs/results/features_by_band.md (clip, shrink, dynamic, worked, kl), the
median and the largest, and what six seeds find with 80 % power, uncorrected:
                                  sd            found
  pass@1, hard                 3.4 (4.2)      4.9 (6.0)
  pass@1, easy                20.3 (24.8)    29.1 (35.6)
  mass on wrong steps          2.2 (3.9)      3.2 (5.6)
  pass@1 gained                7.8 (13.6)    11.2 (19.5)
Fresh bands use half of the samples, and positive mass is twice the mass of both signs
if a group's advantages add up to 0, so expect more for both. Holm's first step at nine
arms needs p = .0056. The loss of easy problems that worked answers prevented (23.8) is
found less often than that.

What counts, by outcomes 1 and 2, for each published rule and its claim to be better on
hard problems:
  reproduced    it gains more than grpo on hard problems, after Holm.
  in shape      its interval without correction is above 0.
  inconclusive  its interval contains 0 and 4.9.
  contradicted  its interval is below 4.9 and contains 0, or lies below 0.
The claim of this project, that luck does harm: over the arms, the larger the positive
mass on wrong steps, the smaller the gain. It is reproduced if `worked` gains more than
grpo in outcomes 1 and 2 after Holm, contradicted if both intervals lie below 0.

Compute. 60 runs and 6 starts. A run takes 2.4 CPU minutes, and about 0.6 more for three
evaluations; a start takes 4.6. incorrect_again takes up to four times as long. About
250 CPU minutes, and some 2 GB of checkpoints.

Command: bash launch/reproduce.sh advantages
Results: docs/findings/advantages.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from job_jax.config import CheckpointConfig
from rlvr_jax.config import Arm, Config, Experiment, Overrides

_INVERTED_U = Path(__file__).with_name("inverted_u.py")
_SEEDS = tuple(range(10, 16))


def get_config() -> Config:
    """Returns the recipe: GRPO on the hard band, looked at every 20 steps."""
    config = load_config(_INVERTED_U, Config)
    return dataclasses.replace(
        config,
        name="advantages",
        curriculum=dataclasses.replace(config.curriculum, band="hard"),
        eval=dataclasses.replace(config.eval, num_samples=16, every=20),
        checkpoint=CheckpointConfig(every=20, max_to_keep=4),
    )


def get_experiment() -> Experiment:
    """Returns an arm for each rule, reward and way of sampling."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    primary = (
        "pass@1 gained, hard, fresh",
        "pass@1 gained, easy, fresh",
        "positive mass on wrong steps",
    )
    return dataclasses.replace(
        of_bands,
        question="Which advantages teach from over-hard problems?",
        reference="2609.04063, 2609.13443 and 2506.01347, each on one large model",
        outcomes=(
            *primary,
            "positive mass on wrong answers",
            "mass on wrong steps",
            "pass@1 gained, medium, fresh",
            "pass@1 gained",
            "pass@1 before RL",
            "pass@8 gained",
            "entropy",
            "completion length",
            "groups of zero advantage",
            "groups without signal",
        ),
        corrected=primary,
        pairs=tuple(("positive mass on wrong steps", gained) for gained in primary[:2]),
        baseline="grpo",
        seed_sd=3.4,
        seed_sd_source="pass@1 on hard problems, minus hard, median of five arms of "
        "features_by_band: 2.5 to 4.2",
        seeds=_SEEDS,
        arms={
            name: Arm(overrides=overrides, start="start@0")
            for name, overrides in _changes().items()
        },
    )


def _changes() -> dict[str, Overrides]:
    """Returns the overrides of each arm, on top of GRPO."""
    rule, reward = "train.advantage.name", "train.reward.names"
    no_std = {"train.advantage.normalize": "none"}
    return {
        "grpo": {},
        "dr_grpo": {**no_std, "train.loss.aggregation": "seq_mean_token_sum_norm"},
        "rloo": {**no_std, "train.advantage.baseline": "rloo"},
        "positive_only": {rule: "positive_only"},
        "negative_only": {rule: "negative_only"},
        "sign_balance": {rule: "sign_balance"},
        "asymmetric": {rule: "asymmetric"},
        "incorrect_again": {
            "dynamic_sampling.name": "incorrect_again",
            "dynamic_sampling.max_rounds": "3",
        },
        "plurality": {reward: "plurality"},
        "worked": {reward: "rlvr_jax.tasks.finite_field.rewards:worked_answer"},
    }
