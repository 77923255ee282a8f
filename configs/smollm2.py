"""SmolLM2-135M-Instruct learns arithmetic on two CPU cores.

The model answers 192 graded questions 8 times each, which shows how hard each one is
for it. A temporal autoencoder of the residual stream after layer 24 of 0..29 is trained
on its answers, and then only watches. GRPO with LoRA trains on the medium questions,
which the model answers correctly in 1 to 7 of 8 samples. Held-out questions use numbers
that training never combines.

Command: bash launch/real_model.sh [--config.seed=1 --workdir=runs/smollm2_1]
Experiment, with RFGO and with a random reward:
    python -m rlvr_jax.experiment --config=smollm2 --workdir=runs/arms

Measured once, seed 0, commit 2a11520, alone on 2 CPU cores, nothing compiled before:
27 minutes and 5.3 GiB from a fresh clone; 96 held-out questions x 8 samples [95 %]:

    pass@1                      8.5 % -> 46.2 %, +37.8 points [28.0, 46.6]
    medium, by 4 samples        25 % -> 85 %     21 questions, scored on 4 more
    hard                         5 % -> 35 %     75
    lenient accuracy           15.2 % -> 48.6 %  the gold is anywhere in the text
    completion length          35.8 -> 15.0 tokens; cut by the limit 49 % -> 1 %
    autoencoder                FVE .84, no dead latents

Five more runs, of three seeds and with other rounding, gained 21.6, 24.1, 27.6, 29.9
and 30.3 points. With a random reward, pass@1 ended at 0.7, 1.7 and 13.4 % (3 seeds).
docs/use/real_model.md has the levels, completions before and after, and the open
points.
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    Arm,
    Config,
    DifficultyConfig,
    EvalConfig,
    Experiment,
    LogConfig,
    LoRAConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainedConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.mixture import Band
from rlvr_jax.probe import ProbeSAEConfig, SAEProbeConfig
from rlvr_jax.tasks import ArithmeticTask
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig


def get_config() -> Config:
    """Returns the recipe."""
    # At temperature 1 this model writes noise; at 0.7 most of its text makes sense.
    sampling = SamplingConfig(max_new_tokens=48, temperature=0.7)
    return Config(
        name="smollm2",
        task=ArithmeticTask(),
        pretrained=PretrainedConfig(path="models/SmolLM2-135M-Instruct"),
        model=ModelConfig(family="pretrained", max_seq_len=128),
        tokenizer=TokenizerConfig(kind="huggingface"),
        sft=SFTConfig(steps=0),
        difficulty=DifficultyConfig(num_samples=8, pool_size=192),
        curriculum=Band(band="medium"),
        probe=SAEProbeConfig(
            layer=24,  # of 0..29
            num_problems=96,
            num_reference_texts=32,
            log_every=5,
            sae=ProbeSAEConfig(
                architecture=SAEConfig(latents=1152, k=32),
                optimizer=SAEOptimizerConfig(learning_rate=1e-3, warmup_steps=50),
                train=SAETrainConfig(
                    steps=800,
                    num_seeds=2,
                    no_contrast_baseline=False,
                    threshold_start_step=200,
                    threshold_decay=0.98,
                ),
                batch_size=512,
            ),
        ),
        train=TrainConfig(
            steps=20,
            batch_size=8,
            group_size=8,
            packing=True,
            sampling=sampling,
            lora=LoRAConfig(rank=16, alpha=32),
            optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=4),
        ),
        # Batches of 48 fit 96 problems and the 192 of `difficulty` without padding.
        eval=EvalConfig(
            num_problems=96, num_samples=8, batch_size=48, sampling=sampling
        ),
        log=LogConfig(rollouts_every=1, progress_every=5, alarm_window=10),
        checkpoint=CheckpointConfig(every=5),
        prompt_pad_multiple=64,
        completion_pad_multiple=48,
    )


def get_experiment() -> Experiment:
    """Returns the arms: GRPO, RFGO, and GRPO with a random reward.

    All arms of a seed start from the same bands and the same autoencoder.
    """
    return Experiment(
        question="What does RL on medium problems teach a real model, and is it RFGO "
        "or any reward that teaches it?",
        reference="SmolLM2-135M-Instruct on single-digit sums, one seed by hand: "
        "20.8 -> 84.4 % in 11 steps",
        outcomes=(
            "pass@1 gained",
            "pass@1",
            "pass@8",
            "pass@1, easy",
            "pass@1, medium",
            "pass@1, hard",
            "lenient accuracy gained",
            "completion length",
            "features claimed",
            "features that noise claims",
        ),
        baseline="verdict",
        seed_sd=5.0,
        seed_sd_source="a guess, before the first run",
        seeds=(0, 1, 2),
        start_stages=("sft", "difficulty", "probe"),
        arms={
            "verdict": Arm(start="start@0"),
            "rfgo": Arm(
                start="start@0",
                overrides={
                    "train.rfgo.lambda_w": "0.5",
                    "train.rfgo.lambda_p": "0.1",
                },
            ),
            "coin": Arm(start="start@0", overrides={"train.reward.names": "random"}),
        },
    )
