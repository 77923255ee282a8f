"""Hard problems asked backward, where that makes them medium (2605.28388).

configs/paper/reformulation.py with a policy that was shown less: 6-9 steps in 3 % of
its solutions. Of an inversion it can still only guess the start, and the same chain
asked backward is an evaluation that it slips on: it can be learned, as the paper's
rewritten problems can, and is asked on the way to the same held-out problems.

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
    """Returns an arm for each share that is asked backward."""
    of_reformulation = call_recipe(_REFORMULATION, "get_experiment", Experiment)
    return dataclasses.replace(
        of_reformulation,
        question="Do hard problems teach that become medium when asked backward?",
    )
