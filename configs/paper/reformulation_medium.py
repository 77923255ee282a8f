"""Hard problems turned backward, if that makes them medium (2605.28388).

configs/paper/reformulation.py with a policy that saw less: 6-9 steps in 3 % of its
solutions. It still can only guess the start of an inversion. The same chain
backward is an evaluation, and the policy makes mistakes on it. So it can learn it, as
with the paper's rewritten problems. Held-out problems are the same as there.

Command: bash launch/reproduce.sh reformulation_medium
Results: docs/findings/backward_medium.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Config, Experiment
from rlvr_jax.tasks import FiniteFieldTask

_REFORMULATION = Path(__file__).with_name("reformulation.py")


def get_config() -> Config:
    """Returns the recipe: RL on inversions alone, none of them reformulated."""
    config = load_config(_REFORMULATION, Config)
    assert isinstance(config.task, FiniteFieldTask)
    shown = dataclasses.replace(
        config.task.sft,
        chain_length_weights=(1.0, 1.0, 1.0, 1.0, 0.06, 0.03, 0.02, 0.01),
    )
    return dataclasses.replace(
        config,
        name="reformulation_medium",
        task=dataclasses.replace(config.task, sft=shown),
    )


def get_experiment() -> Experiment:
    """Returns an arm for each share of backward problems."""
    of_reformulation = call_recipe(_REFORMULATION, "get_experiment", Experiment)
    return dataclasses.replace(
        of_reformulation,
        question="Do hard problems teach that become medium when asked backward?",
    )
