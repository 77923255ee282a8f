"""Whether what RL teaches of two chains carries over to three to five (2606.13125).

SFT shows evaluations, inversions and compositions of two chains, forward and backward
by the toss of a coin, so that half of the chains begin with a guess. RL, rewarded by
the answer alone, asks two chains, or three to five, or no compositions; held-out
problems are compositions of three to five.

configs/paper/selection.py's policy and algorithm; what is asked is ours, for the paper
says no more than that it composes.

Command: bash launch/reproduce.sh composition

NOT RUN.
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment, SamplingConfig
from rlvr_jax.tasks import ChainMix, FiniteFieldTask

_SELECTION = Path(__file__).with_name("selection.py")


def get_config() -> Config:
    """Returns the recipe: RL on compositions of two chains."""
    config = load_config(_SELECTION, Config)
    assert isinstance(config.task, FiniteFieldTask)
    shown = dataclasses.replace(
        config.task.sft, types=("evaluation", "inversion", "composition")
    )
    asked = ChainMix(
        types=("composition",), chain_lengths=(5, 6, 7, 8, 9), num_problems=1024
    )
    held_out = dataclasses.replace(asked, composition_parts=(3, 4, 5), num_problems=0)
    task = dataclasses.replace(config.task, sft=shown, train=asked, eval=held_out)
    sampling = dataclasses.replace(config.train.sampling, max_new_tokens=80)
    return dataclasses.replace(
        config,
        name="composition",
        task=task,
        train=dataclasses.replace(config.train, sampling=sampling),
        eval=dataclasses.replace(
            config.eval, sampling=SamplingConfig(max_new_tokens=80)
        ),
        prompt_pad_multiple=64,
        completion_pad_multiple=40,
    )


def get_experiment() -> Experiment:
    """Returns an arm for each number of parts; nothing of this is published."""
    of_selection = call_recipe(_SELECTION, "get_experiment", Experiment)
    return dataclasses.replace(
        of_selection,
        question="Does RL on two chains carry over to three to five?",
        reference="after arXiv 2606.13125",
        outcomes=("pass@1 gained", "pass@1 before RL", "pass@1", "pass@32"),
        baseline="two_parts",
        starts={"start": {}},
        arms={
            "two_parts": Arm(),
            "more_parts": Arm(overrides={"task.train.composition_parts": "3,4,5"}),
            "no_composition": Arm(
                overrides={"task.train.types": "evaluation,inversion"}
            ),
        },
    )
