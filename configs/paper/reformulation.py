"""Hard problems, a share of them backward: what reformulation adds (2605.28388).

The policy of configs/paper/selection.py that saw only forward solutions. It calculates
evaluations. For an inversion it can only guess the start, and one guess in seven is
right, so every success is luck. No problem is harder for it. RL trains on inversions of
6-9 steps. Turned backward, the same chain is an evaluation, which the policy can solve.
The arms differ in the share of reversed problems. Held-out problems are of both types.

Ours: the paper rewrites word problems by masking their quantities, and has no such
share. Its inverse items have signal because they are easier. Here the world makes them
easier by construction.

Command: bash launch/reproduce.sh reformulation
Results: docs/findings/backward.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment
from rlvr_jax.tasks import FiniteFieldTask

_SELECTION = Path(__file__).with_name("selection.py")


def get_config() -> Config:
    """Returns the recipe: RL on inversions alone, none of them reformulated."""
    config = load_config(_SELECTION, Config)
    task = config.task
    assert isinstance(task, FiniteFieldTask)
    return dataclasses.replace(
        config,
        name="reformulation",
        task=dataclasses.replace(
            task,
            sft=dataclasses.replace(task.sft, strategies=("forward",)),
            train=dataclasses.replace(task.train, types=("inversion",)),
        ),
        train=dataclasses.replace(
            config.train, batch_size=16, grad_accum_steps=1, steps=60
        ),
        eval=dataclasses.replace(config.eval, num_samples=16),
    )


def get_experiment() -> Experiment:
    """Returns an arm for each share of backward problems."""
    of_selection = call_recipe(_SELECTION, "get_experiment", Experiment)
    shares = {"none": "0", "tenth": "0.1", "third": "0.3", "all": "1"}
    return dataclasses.replace(
        of_selection,
        question="Does asking hard problems backward undo the harm that they do?",
        reference="after arXiv 2605.28388: AMC 39.76 -> 43.37, Minerva 15.81 -> 26.47",
        outcomes=(
            "pass@1 gained",
            "pass@1 before RL",
            "pass@1",
            "pass@1, inversion",
            "pass@1, evaluation",
            "correct if chosen, evaluation forward",
            "reward gained",
            "groups without signal",
            "completion length",
        ),
        baseline="none",
        starts={"start": {}},
        arms={
            name: Arm(overrides={"task.train.inverted_fraction": share})
            for name, share in shares.items()
        },
    )
