r"""Which band of difficulty teaches Qwen2.5-Math-1.5B on MATH: arXiv 2605.28388.

configs/medium.py with the paper's arms: RL on each band, on easy and medium problems,
on all, and RFGO. Its docstring lists the requirements and the parts that are ours. An
arm is plain GRPO unless it says otherwise.

Commands, with the checkpoint and MATH where configs/medium.py has them:
    bash launch/reproduce.sh full_size/math_bands --dry_run
    python -m rlvr_jax.main --config=paper/full_size/math_bands \
        --compile_only --topology=v5e:4x4
A run scores itself on MATH's test problems. To score it on the published five
benchmarks:
    python -m rlvr_jax.evaluate --config=RUN/config.json --checkpoint=RUN \
        --suite=math5 --suite_dir=benchmarks --out=RUN/math5 --table=md

NOT RUN: we had no weights and no accelerator. Compiled for a v5e-16 (JAX 0.10.2, libtpu
0.0.42.1), where a chip has 15.75 GiB. The sampler takes 11.4, the scorer 4.6, a
gradient 10.2 and the update 2.1. In the probe, its activations take 15.4, a step of the
T-SAE's fit 9.2, the reference texts 6.5 and a logged step's gradient 10.2.
"""

import dataclasses
from pathlib import Path

from job_jax.command import load_config
from rlvr_jax.config import Arm, Config, Experiment, RFGOConfig

_MEDIUM = Path(__file__).parents[2] / "medium.py"


def get_config() -> Config:
    """Returns the recipe: plain GRPO on the medium band."""
    config = load_config(_MEDIUM, Config)
    rfgo = RFGOConfig(lambda_w=0.0, lambda_p=0.0)
    train = dataclasses.replace(config.train, rfgo=rfgo)
    return dataclasses.replace(config, name="math_bands", train=train)


def get_experiment() -> Experiment:
    """Returns the paper's arms; `published` is a mean of five benchmarks."""
    mixture = {"curriculum.name": "mixture", "curriculum.bands": "easy,medium"}
    return Experiment(
        question="Do medium problems teach, and do over-hard ones harm?",
        reference="arXiv 2605.28388, means of five benchmarks: 37.63 before RL",
        outcomes=("pass@1", "pass@1 gained", "pass@1, hard", "completion length"),
        baseline="medium",
        seed_sd=2.0,
        seed_sd_source="a guess: nobody has reported several seeds",
        starts={},
        arms={
            "medium": Arm(start="", published="38.08"),
            "hard": Arm(
                start="", overrides={"curriculum.band": "hard"}, published="31.88"
            ),
            "easy": Arm(start="", overrides={"curriculum.band": "easy"}),
            "easy_and_medium": Arm(
                start="",
                overrides={**mixture, "curriculum.band_weights": "0.5,0.5"},
                published="more than full",
            ),
            "full": Arm(
                start="", overrides={"curriculum.name": "uniform"}, published="36.67"
            ),
            "full_rfgo": Arm(
                start="",
                overrides={
                    "curriculum.name": "uniform",
                    "train.rfgo.lambda_w": "0.5",
                    "train.rfgo.lambda_p": "0.1",
                },
                published="38.40",
            ),
        },
    )
