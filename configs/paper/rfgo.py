"""RFGO where it can act: in more than a fifth of the groups every answer is wrong.

configs/quickstart_rfgo.py with groups of 4, and more hard problems than medium ones. A
guess on a hard problem is right one time in seven. So in about half of its groups no
answer is right, and only the proxy gives a signal. The arms share the autoencoder of
their seed's policy before RL, and each chooses its own features. If an arm confirms
none, RFGO is off: the arm is then GRPO, and `refusal` in summary.json says so.

Controls: as many random latents matched by firing rate, the direction of correct minus
incorrect, and the token weights in a random order. No arm was seen to gain. So we added
RFGO with four and five times the strength and random latents of that strength, and then
random directions.

Command: bash launch/reproduce.sh rfgo; to compare with a control instead of GRPO:
    python -m rlvr_jax.analysis experiment runs/paper/rfgo --baseline=random_latents

Results: docs/findings/rfgo.md: no gain found over GRPO; too few seeds to exclude the
published one.
"""

import dataclasses
from pathlib import Path

from job_jax.command import load_config
from rlvr_jax.config import Arm, Config, Experiment, RFGOConfig
from rlvr_jax.data.curricula.mixture import Mixture

_QUICKSTART = Path(__file__).parents[1] / "quickstart_rfgo.py"


def get_config() -> Config:
    """Returns the recipe: GRPO, watched by the probe."""
    config = load_config(_QUICKSTART, Config)
    return dataclasses.replace(
        config,
        name="rfgo",
        curriculum=Mixture(bands=("medium", "hard"), band_weights=(0.4, 0.6)),
        train=dataclasses.replace(
            config.train,
            batch_size=32,
            group_size=4,
            rfgo=RFGOConfig(lambda_w=0.0, lambda_p=0.0),
        ),
        eval=dataclasses.replace(config.eval, num_samples=16, num_gold_problems=0),
    )


def get_experiment() -> Experiment:
    """Returns the arms. The paper ran RFGO on all problems, with five benchmarks."""
    return Experiment(
        question="Do features of reasoning teach where outcomes are silent?",
        reference="arXiv 2605.28388, Qwen2.5-Math-1.5B: 37.63, GRPO 36.67, RFGO 38.40",
        outcomes=(
            "pass@1",
            "pass@1 gained",
            "pass@8",
            "pass@1, easy",
            "pass@1, medium",
            "pass@1, hard",
            "groups without signal",
            "groups all incorrect",
            "groups with a proxy",
        ),
        baseline="grpo",
        seed_sd=1.5,
        seed_sd_source="a guess; the quickstart's gain over three seeds: 0.4",
        start_stages=("sft", "difficulty", "probe"),
        arms=_arms(),
        reduced={
            "model.num_layers": "1",
            "model.hidden_size": "32",
            "model.intermediate_size": "32",
            "sft.steps": "8",
            "difficulty.pool_size": "32",
            "difficulty.num_samples": "4",
            "probe.layer": "0",
            "probe.num_problems": "16",
            "probe.num_reference_texts": "8",
            "probe.log_every": "2",
            "probe.sae.train.steps": "20",
            "probe.sae.train.threshold_start_step": "4",
            "probe.sae.batch_size": "64",
            "probe.sae.optimizer.warmup_steps": "2",
            "train.steps": "4",
            "train.batch_size": "4",
            "eval.num_problems": "16",
            "eval.num_samples": "4",
        },
    )


def _arms() -> dict[str, Arm]:
    """Returns GRPO, RFGO as a whole and in parts, and its controls."""
    weights = {"train.rfgo.lambda_w": "0.5"}
    proxy = {"train.rfgo.lambda_p": "0.1"}
    strong = {"train.rfgo.lambda_w": "2", "train.rfgo.lambda_p": "0.5"}
    shared = {"probe.sae_path": "{start}/sae"}

    def control(name: str) -> dict[str, str]:
        return {"probe.features.control": name}

    return {
        "grpo": Arm(overrides=shared),
        "weights": Arm(overrides=shared | weights),
        "proxy": Arm(overrides=shared | proxy),
        "both": Arm(overrides=shared | weights | proxy),
        "random_latents": Arm(
            overrides=shared | weights | proxy | control("random_latents")
        ),
        "direction": Arm(overrides=shared | weights | proxy | control("direction")),
        "shuffled_weights": Arm(
            overrides=shared | weights | control("shuffled_weights")
        ),
        "strong": Arm(overrides=shared | strong),
        "strong_random_latents": Arm(
            overrides=shared | strong | control("random_latents")
        ),
        "strong_random_directions": Arm(
            overrides=shared | strong | control("random_directions")
        ),
    }
