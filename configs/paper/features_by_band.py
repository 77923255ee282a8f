"""Features that RL on each band of difficulty changes (arXiv 2605.28388).

The arms of configs/paper/inverted_u.py, with the T-SAE of configs/quickstart_rfgo.py on
the policy before RL; all arms of a seed share it. It only watches: RFGO is off, and an
arm ends with the same bits as without it. Each arm's features are tested against noise
in the weights that moves the residual stream as far (docs/method/features.md).

A feature is an arm's own if no other arm of RL on medium, hard or easy problems gained
it, and the repeat of RL on medium problems did not either. The repeat's own features
show how much two runs of one kind differ. The paper had one run each. One confound
remains: an arm with more signal moves more.

Runs are also evaluated during training, to find metrics that warn of a fall. Hardly any
feature was claimed, so we added two other dictionaries, not evaluated during training:
`_wide`, with four times the latents, and `_twin`, without the temporal loss.

Command: bash launch/reproduce.sh features_by_band; for two other measures
    python -m rlvr_jax.analysis geometry DIR/medium/seed_0 DIR/hard/seed_0
    python -m rlvr_jax.analysis crosscoder DIR/hard/seed_0
Results: docs/findings/features_by_band.md, and luck.md, random_reward.md,
length_warning.md, lasting_harm.md next to it.
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment, RFGOConfig

_INVERTED_U = Path(__file__).with_name("inverted_u.py")
_QUICKSTART = Path(__file__).parents[1] / "quickstart_rfgo.py"


def get_config() -> Config:
    """Returns the recipe: RL on the medium band, watched but not steered."""
    config = load_config(_INVERTED_U, Config)
    return dataclasses.replace(
        config,
        name="features_by_band",
        probe=load_config(_QUICKSTART, Config).probe,
        train=dataclasses.replace(
            config.train, rfgo=RFGOConfig(lambda_w=0.0, lambda_p=0.0)
        ),
        eval=dataclasses.replace(config.eval, num_samples=16, every=5),
    )


def get_experiment() -> Experiment:
    """Returns an arm for each band; `published` counts the band's own features."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    starts = {
        "start": {},
        "wide": {"probe.sae.architecture.latents": "1024", "eval.every": "0"},
        "twin": {"probe.sae.loss.alpha": "0", "eval.every": "0"},
    }
    own = {"medium": "4", "medium_again": "", "hard": "35", "easy": "5"}
    return dataclasses.replace(
        of_bands,
        question="Does each band of difficulty move features of its own?",
        reference="arXiv 2605.28388, Qwen2.5-Math-1.5B: 13 features emerge",
        outcomes=(
            "features of its own",
            "features claimed",
            "features that noise claims",
            "features strengthened",
            "features suppressed",
            "features emerging",
            *of_bands.outcomes,
        ),
        seed_sd=5.0,
        seed_sd_source="a guess, before the first run",
        start_stages=("sft", "difficulty", "probe"),
        feature_arms=(*own,),
        starts=starts,
        arms={
            name: dataclasses.replace(arm, published=own.get(name, ""))
            for name, arm in of_bands.arms.items()
        }
        | {
            f"{band}_{sae}": Arm(overrides={"curriculum.band": band}, start=f"{sae}@0")
            for sae in ("wide", "twin")
            for band in ("medium", "hard")
        },
        reduced={
            **of_bands.reduced,
            "probe.layer": "0",
            "probe.num_problems": "16",
            "probe.num_reference_texts": "8",
            "probe.sae.train.steps": "20",
            "probe.sae.train.threshold_start_step": "4",
            "probe.sae.batch_size": "64",
            "probe.sae.optimizer.warmup_steps": "2",
        },
    )
