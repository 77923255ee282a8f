"""Which scores of difficulty tell what a problem is worth to the policy as it is now.

Question. Data are pruned by EL2N (2107.07609), by forgetting events (1812.05159) and by
how well they are memorized; work on RL keeps problems of medium pass rate. Do these
scores rank problems by what they do to this policy? A fork of the run takes a step once
with a problem and once without it, with the same keys. The difference in the
log-probability of held-out worked solutions is the problem's influence, exactly.

Runs. RL on all problems of configs/paper/inverted_u.py, from a pool of 128, 64 a step,
so that by step 40 each was visited some twenty times and may have been forgotten. Then
the influence of the first 32 of the 64 problems of a step, whose order is random, in
the steps after 20 and after 40, with --nopass_at_1. (All 64 were planned, and take
twice as long: cut before any number was read.) Last, correlations over all of these.
RUN is runs/paper/problem_influence/full/seed_30 to 34:
    python -m rlvr_jax.analysis influence --run=RUN@20 --problems=0,1,...,31
    python -m rlvr_jax.analysis influence --run=RUN@40 --problems=0,1,...,31
    python -m rlvr_jax.analysis estimates RUN/influence_20.json ...
Seeds. 30 to 34, which no run has used.

Primary outcome. Spearman's correlation of each estimate with the influence, over the
problems of a step that have a signal, averaged over a seed's two steps; Student's t
over seeds, two-sided, 5 %, Holm's correction over the six estimates: dot product of
gradients, TracIn, p (1 - p), EL2N, log-probability of the problem's own worked
solution, forgetting events.

What counts, for problems with a signal. The dot product is the control that should
succeed: if its correlation is not positive with p below .05 after Holm, nothing is
*testable*. EL2N, forgetting and the own solution (memorization) are each, as scores of
value:
  reproduced    p below .05 after Holm, of either sign: pruning keeps hard problems
                where data are many and easy ones where they are few.
  in shape      the interval excludes 0, and Holm's p does not.
  inconclusive  it contains 0 and reaches 0.3 or -0.3, or fewer than three seeds have
                this estimate.
  contradicted  it contains 0 and lies within those.
Nothing follows for problems without a signal, whose influence is 0, or for later steps.
TracIn sums over all checkpoints that the run kept, also those after the step.

Power. If a correlation varies by .2 between seeds (a guess; two steps of some sixteen
problems alone vary by .18), five seeds find .34 with 80 % power, uncorrected. Holm's
first step at six estimates needs about .5.

Compute. Five starts of 2 minutes, five runs of 5 and ten measurements of 3, on one
core: about an hour.

Command: bash launch/reproduce.sh problem_influence, then the commands above
Results: docs/findings/problem_influence.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from job_jax.config import CheckpointConfig
from rlvr_jax.config import Arm, Config, Experiment
from rlvr_jax.data.curricula.uniform import Uniform

_INVERTED_U = Path(__file__).with_name("inverted_u.py")


def get_config() -> Config:
    """Returns the recipe: RL on all problems of a small pool, with its checkpoints."""
    config = load_config(_INVERTED_U, Config)
    return dataclasses.replace(
        config,
        name="problem_influence",
        difficulty=dataclasses.replace(config.difficulty, pool_size=128),
        curriculum=Uniform(),
        train=dataclasses.replace(config.train, steps=42, batch_size=64),
        eval=dataclasses.replace(config.eval, num_samples=16),
        checkpoint=CheckpointConfig(every=20, max_to_keep=4),
    )


def get_experiment() -> Experiment:
    """Returns one arm, whose steps are taken again without one problem each."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    return dataclasses.replace(
        of_bands,
        question="Which scores of difficulty tell what a problem is worth?",
        reference="2107.07609 and 1812.05159, on image classifiers",
        outcomes=("pass@1 gained", "pass@1 before RL", "groups without signal"),
        baseline="full",
        seed_sd=8.2,
        seed_sd_source="hard minus medium in inverted_u; this has one arm",
        seeds=(30, 31, 32, 33, 34),
        arms={"full": Arm(overrides={}, start="start@0")},
        reduced=of_bands.reduced | {"train.batch_size": "8"},
    )
