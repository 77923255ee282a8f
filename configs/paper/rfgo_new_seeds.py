"""Whether RFGO gains over GRPO: the seeds that configs/paper/rfgo.py lacked.

Question. RFGO gained 0.0 points over GRPO [-2.8, +2.8] in the four seeds of rfgo.py in
which it ran. The interval contains the published gain of 1.73. Does it gain more than
GRPO, over enough seeds to find 1.73? And do two other readings of it gain?

Arms, all from the starts of their seed with the same random keys:
  grpo       the baseline, watched by the probe
  both       rfgo.py's RFGO: lambda_w = 0.5 by the change of features from token to
             token, lambda_p = 0.1
  ref_diff   the same, but tokens weigh by how far RL has moved their activation
             (policy minus policy before RL)
  frozen     as `both`, but all features are read from a frozen copy, the policy before
             RL. RL can then not move the features that pay it
Seeds. 5 to 11, not used by rfgo.py. RFGO is off where no feature is confirmed, which
happened in one seed of five; all arms are then GRPO to the bit. Such a seed counts in
no difference below.

Primary outcome: pass@1 of `both` minus `grpo`, paired by seed, over the seeds of this
recipe and of rfgo.py in which RFGO ran; Student's t, two-sided, 5 %. The four old seeds
were seen, so the seven new ones alone are reported next to it.
Secondary: pass@1 of ref_diff and of frozen minus grpo over the new seeds, and `both`
minus grpo on hard problems, with Holm's correction over these three; pass@8; the share
of groups with a proxy.

Power. A difference varied by 1.8 between the four seeds. Eleven seeds then find 1.7
points with 80 % power, seven find 2.3.

What counts, for the primary outcome:
  reproduced    the interval lies above 0.
  inconclusive  it contains 0 and 1.73.
  contradicted  it lies below 1.73 and contains 0, or lies below 0.

Compute. 28 runs and 7 starts of about 4.7 minutes on one core, 160 minutes of stages;
more where the reference policy is read. Two at once: 80 minutes or more.

Command: bash launch/reproduce.sh rfgo_new_seeds
Results: docs/findings/rfgo.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment

_RFGO = Path(__file__).with_name("rfgo.py")


def get_config() -> Config:
    """Returns rfgo.py's recipe under another name."""
    return dataclasses.replace(load_config(_RFGO, Config), name="rfgo_new_seeds")


def get_experiment() -> Experiment:
    """Returns GRPO, RFGO, and two other readings of it, on new seeds."""
    of_rfgo = call_recipe(_RFGO, "get_experiment", Experiment)
    both = of_rfgo.arms["both"].overrides

    def read(**changes: str) -> Arm:
        return Arm(
            overrides=both
            | {f"train.rfgo.{name}": value for name, value in changes.items()}
        )

    return dataclasses.replace(
        of_rfgo,
        question="Does RFGO gain over GRPO, with the seeds that this needs?",
        seed_sd=1.8,
        seed_sd_source="both minus grpo, rfgo.py, the four seeds in which it ran",
        seeds=tuple(range(5, 12)),
        arms={
            "grpo": of_rfgo.arms["grpo"],
            "both": of_rfgo.arms["both"],
            "ref_diff": read(token_score="ref_diff"),
            "frozen": read(features_of="reference"),
        },
    )
