"""Whether RL on three to five chains teaches them, tested on fresh seeds.

The two arms of configs/paper/composition.py with larger batches, run again. We had
chosen them by trials of seed 0. Seeds 0 to 4 then left two questions open: whether RL
on three to five chains gains at all, and whether it gains more than RL on two chains.
We fixed this test before we ran the seeds below, and only they count.

Command: bash launch/reproduce.sh composition_new_seeds
Results: docs/findings/composition.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Config, Experiment

_COMPOSITION = Path(__file__).with_name("composition.py")


def get_config() -> Config:
    """Returns composition.py's recipe under another name."""
    config = load_config(_COMPOSITION, Config)
    return dataclasses.replace(config, name="composition_new_seeds")


def get_experiment() -> Experiment:
    """Returns the two arms with larger batches, with five new seeds."""
    of_composition = call_recipe(_COMPOSITION, "get_experiment", Experiment)
    names = ("two_chains_large", "more_chains_large")
    return dataclasses.replace(
        of_composition,
        question="Does RL on three to five chains teach these?",
        seed_sd=3.5,
        seed_sd_source="more chains minus two, composition, seeds 0 to 4",
        seeds=(5, 6, 7, 8, 9),
        baseline="two_chains_large",
        arms={name: of_composition.arms[name] for name in names},
    )
