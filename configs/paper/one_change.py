"""RL on medium problems with one change at a time.

World and policy come from configs/paper/inverted_u.py. Arms differ from `medium` in one
thing: the curriculum (three, with as many rollouts), the reward (agreement with a wrong
answer; the answer's form), or which tokens train (the fifth with the highest entropy,
2506.01939).

The other arms test whether our choices cause the result that medium problems teach and
hard ones harm. They have groups of 16, half as many of them; a third of the learning
rate; SFT twice as long; a policy of half the weights; or momentum instead of Adam.
Adam's steps are as long after a small gradient as after a large one. With eps=0.01 they
are proportional to the gradient, and the learning rate makes them about as long as
Adam's on medium problems.

Some arms were added later:
  - Momentum, after the reward for the form had harmed in seed 0.
  - Two tests of the lower rate, after seeds 0 to 2 of all arms above. Does it do more
    than fewer steps (27 steps at 1e-4 have the same sum of rates as 80 at 3e-5, warm-up
    included)? And does luck harm at that rate (`hard_worked`: pays for worked answers)?
  - Last, a coin instead of the verdicts, at both rates: first on medium problems, then,
    after seed 0, on hard ones.

To compare pairs of bands:
    python -m rlvr_jax.analysis experiment DIR --baseline=medium_narrow --arms=...
The clip is not one of these choices: there is one update a batch, so its ratio is 1.

Command: bash launch/reproduce.sh one_change
Results: docs/findings/one_change.md, and curricula.md, rare_gradient.md next to it
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment

_INVERTED_U = Path(__file__).with_name("inverted_u.py")


def get_config() -> Config:
    """Returns the recipe: RL on the medium band."""
    config = load_config(_INVERTED_U, Config)
    return dataclasses.replace(
        config,
        name="one_change",
        eval=dataclasses.replace(config.eval, num_samples=16),
    )


def get_experiment() -> Experiment:
    """Returns arms with one change each, and pairs of bands that share a change."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    narrow = {
        "model.hidden_size": "96",
        "model.intermediate_size": "288",
        "model.num_heads": "3",
        "model.num_kv_heads": "3",
    }
    return dataclasses.replace(
        of_bands,
        question="What does one change make of RL on medium problems?",
        reference="of the curricula none is the papers'; 2506.01939 on Qwen3-8B: a "
        "fifth of the tokens teaches as much; 2506.10947 on MATH-500: wrong labels "
        "+24.1, format +13.8, Qwen2.5-Math-7B",
        outcomes=(
            "pass@1",
            "pass@1 before RL",
            "pass@1 gained",
            "pass@8",
            "pass@1, easy",
            "pass@1, medium",
            "pass@1, hard",
            "completion length",
            "reward gained",
            "groups without signal",
        ),
        seed_sd=5.0,
        seed_sd_source="minus medium of the same recipe: 0.6 to 10.4",
        starts={"start": {}, "long_sft": {"sft.steps": "400"}, "narrow": narrow},
        arms=_arms(),
    )


def _arms() -> dict[str, Arm]:
    """Returns the arms. If a fork cannot make the change, arms share only SFT."""
    reward, curriculum = "train.reward.names", "curriculum.name"
    slow = {"train.optimizer.learning_rate": "3e-5"}
    momentum = {
        "train.optimizer.eps": "0.01",
        "train.optimizer.learning_rate": "2.5e-3",
    }
    hard_worked = {
        "curriculum.band": "hard",
        reward: "rlvr_jax.tasks.finite_field.rewards:worked_answer",
    }
    of_start: dict[str, dict[str, str]] = {
        "full": {curriculum: "uniform"},
        "easy_to_hard": {curriculum: "easy_to_hard"},
        "target": {curriculum: "target"},
        "variance": {curriculum: "variance"},
        "hard_worked": hard_worked,
        "hard_worked_slow": {**hard_worked, **slow},
        "wrong_label": {reward: "wrong_label"},
        "medium_random": {reward: "random"},
        "medium_random_slow": {reward: "random", **slow},
        "hard_random": {"curriculum.band": "hard", reward: "random"},
        "hard_random_slow": {"curriculum.band": "hard", reward: "random", **slow},
        "format": {reward: "format"},
        "format_momentum": {reward: "format", **momentum},
        "top_entropy": {
            "train.loss.top_entropy_quantile": "0.2",
            "train.old_logprobs": "trainer",
        },
    }
    of_both_bands = {
        "": ("start@0", {}),
        "_slow": ("start@0", slow),
        "_to_27": ("start@0", {"train.steps": "27"}),
        "_groups_of_16": ("start", {"train.group_size": "16", "train.batch_size": "8"}),
        "_long_sft": ("long_sft@0", {}),
        "_narrow": ("narrow@0", {}),
        "_momentum": ("start@0", momentum),
    }
    bands = {
        f"{band}{change}": Arm(
            overrides={"curriculum.band": band, **given}, start=start
        )
        for change, (start, given) in of_both_bands.items()
        for band in ("medium", "hard")
    }
    return bands | {
        name: Arm(overrides=given, start="start@0") for name, given in of_start.items()
    }
