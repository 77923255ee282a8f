"""Does the policy know how likely its answer is right? RLCR (arXiv 2507.16806).

World and policy come from configs/paper/inverted_u.py, but worked solutions end with a
confidence, a random tenth: SFT shows how to state one, not how to choose it. RL trains
on all problems. It pays for a right answer, and with RLCR also for a fitting confidence
q: 1[right] - (q - 1[right])^2. On average this pays most if q is the chance of being
right. A policy can predict that chance from the problem's length.

Command: bash launch/reproduce.sh confidence
Results: docs/findings/confidence.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment
from rlvr_jax.config.learn import RewardConfig
from rlvr_jax.data.curricula.uniform import Uniform

_INVERTED_U = Path(__file__).with_name("inverted_u.py")


def get_config() -> Config:
    """Returns the recipe: RLCR on all problems."""
    config = load_config(_INVERTED_U, Config)
    reward = RewardConfig(names=("correctness", "confidence"), weights=(1.0, 1.0))
    return dataclasses.replace(
        config,
        name="confidence",
        task=dataclasses.replace(config.task, ask_confidence=True),
        curriculum=Uniform(),
        train=dataclasses.replace(config.train, reward=reward),
        eval=dataclasses.replace(config.eval, num_samples=16),
    )


def get_experiment() -> Experiment:
    """Returns RL with and without pay for the confidence."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    unpaid = {"train.reward.weights": "1,0"}  # still measured
    return dataclasses.replace(
        of_bands,
        question="Does pay for a fitting confidence teach the policy what it knows?",
        reference="arXiv 2507.16806, Qwen2.5-7B on HotpotQA: ECE 37 and 3 %",
        outcomes=(
            "ECE",
            "ECE before RL",
            "Brier score",
            "Brier score before RL",
            "AUROC",
            "AUROC before RL",
            "pass@1",
            "pass@1 before RL",
            "pass@1, easy",
            "pass@1, medium",
            "pass@1, hard",
        ),
        baseline="unpaid",
        seed_sd=5.0,
        seed_sd_source="a guess, before the first run",
        arms={
            "unpaid": Arm(overrides=unpaid, start="start@0", published="37"),
            "rlcr": Arm(start="start@0", published="3"),
        },
    )
