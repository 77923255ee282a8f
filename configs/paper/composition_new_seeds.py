"""Whether RL on three to five chains teaches these, by seeds nothing was chosen by.

configs/paper/composition.py's two arms of larger batches, once more. They had been
chosen by trials of seed 0, and over seeds 0 to 4 left it unsettled whether RL on three
to five chains gains at all, and more than RL on two. These seeds had not been run when
this was written; the test is theirs alone.

Command: bash launch/reproduce.sh composition_new_seeds
Results: docs/findings/composition.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Config, Experiment

_COMPOSITION = Path(__file__).with_name("composition.py")


def get_config() -> Config:
    """Returns the recipe of composition.py, under a name of its own."""
    config = load_config(_COMPOSITION, Config)
    return dataclasses.replace(config, name="composition_new_seeds")


def get_experiment() -> Experiment:
    """Returns the arms of larger batches, by five further seeds."""
    of_composition = call_recipe(_COMPOSITION, "get_experiment", Experiment)
    names = ("two_chains_large", "more_chains_large")
    return dataclasses.replace(
        of_composition,
        question="Does RL on three to five chains teach these?",
        seed_sd=3.5,
        seed_sd_source="more chains less two, composition, seeds 0 to 4",
        seeds=(5, 6, 7, 8, 9),
        baseline="two_chains_large",
        arms={name: of_composition.arms[name] for name in names},
    )
