"""RL on a single problem: what predicts which one teaches (2605.28388, 2504.20571).

World, policy and estimates of difficulty come from configs/paper/inverted_u.py. An arm
trains on one problem, in eight groups of eight a step. There is an arm for each of the
first twelve problems of the pool; every seed draws its own pool. The gain of a run on
held-out problems is the learning value of its problem. The command
    python -m rlvr_jax.analysis learning_value runs/paper/one_sample/problem_*/seed_*
compares it with properties of the problem known before RL. `medium` is RL on the whole
medium band, with as many groups and steps.

Later we repeated four problems a seed with three changes:
  - with a KL term, because the first runs gave the answer of their problem to every
    question;
  - with momentum instead of Adam (configs/paper/one_change.py), because that recipe had
    shown that Adam's steps stay long when few groups have signal;
  - with a third of the learning rate, because the harm of hard problems had been seen
    to depend on it.

Command: bash launch/reproduce.sh one_sample
Results: docs/findings/single_problem.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment
from rlvr_jax.data.curricula.uniform import OneSample

_INVERTED_U = Path(__file__).with_name("inverted_u.py")
_ONE_CHANGE = Path(__file__).with_name("one_change.py")
_NUM_PROBLEMS, _NUM_AGAIN = 12, 4


def get_config() -> Config:
    """Returns the recipe: RL on the first problem of the pool."""
    config = load_config(_INVERTED_U, Config)
    optimizer = dataclasses.replace(config.train.optimizer, warmup_steps=5)
    return dataclasses.replace(
        config,
        name="one_sample",
        curriculum=OneSample(problem_index=0),
        train=dataclasses.replace(
            config.train, steps=40, batch_size=8, optimizer=optimizer
        ),
        eval=dataclasses.replace(config.eval, num_samples=16),
    )


def get_experiment() -> Experiment:
    """Returns one or more arms for each problem, and the arms of the medium band."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    medium = {"curriculum.name": "band", "curriculum.band": "medium"}
    of_change = call_recipe(_ONE_CHANGE, "get_experiment", Experiment)
    momentum = of_change.arms["format_momentum"].overrides
    momentum = {key: momentum[key] for key in momentum if "optimizer" in key}
    slow = of_change.arms["medium_slow"].overrides
    slow = {key: slow[key] for key in slow if "optimizer" in key}
    return dataclasses.replace(
        of_bands,
        question="Which single problem teaches most?",
        reference="arXiv 2504.20571, Qwen2.5-Math-1.5B on MATH-500: 36.0, by RL on the "
        "best single problem and on 1,209 problems 73.6",
        outcomes=(
            "pass@1 gained",
            "pass@1 before RL",
            "pass@1",
            "pass@8",
            "pass@1, easy",
            "pass@1, medium",
            "pass@1, hard",
            "mass on wrong steps",
            "groups without signal",
        ),
        baseline="medium",
        seed_sd=6.0,
        seed_sd_source="hard minus medium in five seeds of the inverted U: 5.1, "
        "rounded up for fewer samples",
        arms={
            "medium": Arm(overrides=medium, start="start@0", published="37.6"),
            "momentum_medium": Arm(overrides=medium | momentum, start="start@0"),
            "slow_medium": Arm(overrides=medium | slow, start="start@0"),
        }
        | {
            f"{prefix}problem_{index}": Arm(
                overrides={"curriculum.problem_index": str(index), **more},
                start="start@0",
            )
            for prefix, number, more in (
                ("", _NUM_PROBLEMS, {}),
                ("kl_", _NUM_AGAIN, {"train.loss.kl_coef": "0.05"}),
                ("momentum_", _NUM_AGAIN, momentum),
                ("slow_", _NUM_AGAIN, slow),
            )
            for index in range(number)
        },
    )
