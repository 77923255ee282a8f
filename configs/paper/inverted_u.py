"""Which band of difficulty teaches: the inverted U of arXiv 2605.28388.

Evaluations in GF(7), one strategy, graded by length alone. SFT shows 2-6
steps, and 7-9 too rarely to be learned; RL and evaluation ask for 2-10. So the policy
knows some problems, slips on others, and has to guess the rest: one guess in seven is
right, and in a group of eight that lucky one is the lesson. 16 samples of each of 512
problems before RL say which is which: hard below 0.3 right, easy above 0.9.

Command: bash launch/reproduce.sh inverted_u (docs/findings.md has what came of it)
"""

from rlvr_jax.config import (
    Arm,
    Config,
    DifficultyConfig,
    EvalConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.mixture import Band
from rlvr_jax.tasks import ChainMix, FiniteFieldTask


def get_config() -> Config:
    """Returns the recipe."""
    shown = ChainMix(
        types=("evaluation",),
        strategies=("forward",),
        chain_lengths=(2, 3, 4, 5, 6, 7, 8, 9),
        chain_length_weights=(1.0, 1.0, 1.0, 0.5, 0.25, 0.06, 0.03, 0.015),
        operand_decay=0.8,
    )
    asked = ChainMix(
        types=("evaluation",),
        strategies=("forward",),
        chain_lengths=(2, 3, 4, 5, 6, 7, 8, 9, 10),
    )
    return Config(
        name="inverted_u",
        task=FiniteFieldTask(modulus=7, sft=shown, train=asked, eval=asked),
        model=ModelConfig(scale_embeddings=True),
        sft=SFTConfig(
            steps=200,
            batch_size=64,
            grad_accum_steps=2,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        difficulty=DifficultyConfig(
            num_samples=16, pool_size=512, hard_below=0.3, easy_above=0.9
        ),
        curriculum=Band(band="medium"),
        train=TrainConfig(
            steps=80,
            batch_size=16,
            group_size=8,
            sampling=SamplingConfig(max_new_tokens=72),
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=10),
        ),
        eval=EvalConfig(
            num_problems=72,
            num_samples=128,
            batch_size=24,
            sampling=SamplingConfig(max_new_tokens=72),
        ),
        prompt_pad_multiple=48,
        completion_pad_multiple=72,
    )


def get_experiment() -> Experiment:
    """Returns what is asked of it."""
    return Experiment(
        question="Do medium problems teach, and do over-hard ones harm?",
        reference="arXiv 2605.28388, Qwen2.5-Math-1.5B: 37.63 before RL",
        outcomes=(
            "pass@1",
            "pass@1 before RL",
            "pass@1 gained",
            "pass@8",
            "pass@128",
            "pass@1, easy",
            "pass@1, medium",
            "pass@1, hard",
            "mass on wrong steps",
            "completion length",
        ),
        baseline="medium",
        seed_sd=9.8,
        seed_sd_source="hard less medium, three seeds: -14.5, -31.6, -14.8",
        arms=_arms(),
        reduced={
            "model.num_layers": "1",
            "model.hidden_size": "32",
            "model.intermediate_size": "32",
            "sft.steps": "8",
            "difficulty.pool_size": "32",
            "difficulty.num_samples": "4",
            "train.steps": "4",
            "train.batch_size": "4",
            "eval.num_problems": "18",
            "eval.num_samples": "4",
            "eval.batch_size": "18",
        },
    )


def _arms() -> dict[str, Arm]:
    """Returns RL on each band, on two, on all, and on hard problems with a guard."""
    hard = {"curriculum.band": "hard"}
    mixture = {
        "curriculum.name": "mixture",
        "curriculum.bands": "easy,medium",
        "curriculum.band_weights": "0.5,0.5",
    }
    guard = "train.advantage.overhard_advantage"
    return {
        "medium": Arm(published="38.08"),
        "hard": Arm(overrides=hard, published="31.88"),
        "easy": Arm(overrides={"curriculum.band": "easy"}),
        "easy_and_medium": Arm(overrides=mixture, published="more than full"),
        "full": Arm(overrides={"curriculum.name": "uniform"}, published="36.67"),
        "hard_clip": Arm(overrides={**hard, guard: "clip"}),
        "hard_shrink": Arm(overrides={**hard, guard: "shrink"}),
        "hard_dynamic": Arm(overrides={**hard, "dynamic_sampling.max_rounds": "3"}),
    }
