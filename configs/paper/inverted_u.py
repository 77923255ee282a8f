"""Which band of difficulty teaches: the inverted U of arXiv 2605.28388.

Evaluations in GF(7) with one strategy. Only length makes a problem harder. SFT shows
2-6 steps, and 7-9 too rarely to learn them; RL and evaluation use 2-10. So the policy
knows some problems, slips on others, and has to guess the rest. One guess in seven is
right, and in a group of eight RL learns from the lucky one. 16 samples of each of 512
problems before RL set the bands: hard below 0.3 right, easy above 0.9.

Arms of a seed share everything before RL. `medium_again` repeats RL on medium problems
in another order, and shows how far two runs of one kind differ. Some arms test why hard
problems harm. `hard_worked` pays for a right answer only if its steps lead to it, so RL
learns nothing from luck. `hard_kl` (a KL term), `hard_with_easy` (a quarter of the
problems easy) and `hard_worked_with_easy` test how much of the harm is forgetting.

Other arms are forks of the run on medium problems, with the same bits up to step 40.
From step 40 to 50 they train on hard problems, and then on medium ones again. To
compare the first ten steps, use `medium_to_50`:
    python -m rlvr_jax.analysis experiment DIR --baseline=medium_to_50
Two control arms get a coin toss as reward.

Command: bash launch/reproduce.sh inverted_u --arms=medium,hard,easy,full
Results: docs/findings/inverted_u.md
"""

from job_jax.config import CheckpointConfig
from rlvr_jax.config import (
    Arm,
    Config,
    DifficultyConfig,
    EvalConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    Overrides,
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
        checkpoint=CheckpointConfig(every=40),  # forks start here
        prompt_pad_multiple=48,
        completion_pad_multiple=72,
    )


def get_experiment() -> Experiment:
    """Returns the question, the outcomes and the arms."""
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
            "reward gained",
            "groups without signal",
        ),
        baseline="medium",
        seed_sd=9.8,
        seed_sd_source="hard minus medium, three seeds: -14.5, -31.6, -14.8",
        start_stages=("sft", "difficulty"),
        arms=_arms(),
        reduced={
            "model.num_layers": "1",
            "model.hidden_size": "32",
            "model.intermediate_size": "32",
            "sft.steps": "8",
            "difficulty.pool_size": "32",
            "difficulty.num_samples": "4",
            "train.batch_size": "4",
            "eval.num_problems": "18",
            "eval.num_samples": "4",
            "eval.batch_size": "18",
        },
    )


def _arms() -> dict[str, Arm]:
    """Returns the bands, the variants on hard problems, and the forks."""
    hard, medium = {"curriculum.band": "hard"}, {"curriculum.band": "medium"}
    with_easy = _mix_with_easy("hard", share="0.25")
    guard, reward = "train.advantage.overhard_advantage", "train.reward.names"
    worked = {reward: "rlvr_jax.tasks.finite_field.rewards:worked_answer"}
    to_50, to_80 = {"train.steps": "50"}, {"train.steps": "80"}
    of_start: dict[str, tuple[Overrides, str]] = {
        "medium": ({}, "38.08"),
        "medium_again": ({"curriculum.order": "1"}, ""),
        "hard": (hard, "31.88"),
        "easy": ({"curriculum.band": "easy"}, ""),
        "easy_and_medium": (
            _mix_with_easy("medium", share="0.5"),
            "more than full",
        ),
        "full": ({"curriculum.name": "uniform"}, "36.67"),
        "hard_clip": ({**hard, guard: "clip"}, ""),
        "hard_shrink": ({**hard, guard: "shrink"}, ""),
        "hard_dynamic": ({**hard, "dynamic_sampling.max_rounds": "3"}, ""),
        "hard_worked": ({**hard, **worked}, ""),
        "hard_kl": ({**hard, "train.loss.kl_coef": "0.05"}, ""),
        "hard_with_easy": (with_easy, ""),
        "hard_worked_with_easy": ({**with_easy, **worked}, ""),
        "medium_random": ({reward: "random"}, ""),
        "hard_random": ({**hard, reward: "random"}, ""),
    }
    of_arms: dict[str, tuple[Overrides, str]] = {
        "medium_to_50": (to_50, "medium@40"),
        "ten_hard": ({**hard, **to_50}, "medium@40"),
        "ten_hard_then_medium": ({**medium, **to_80}, "ten_hard@50"),
        "ten_worked": ({**hard, **worked, **to_50}, "medium@40"),
        "ten_worked_then_medium": (
            {**medium, **to_80, reward: "correctness"},
            "ten_worked@50",
        ),
        "hard_then_medium": (medium, "hard@40"),
    }
    return {
        name: Arm(overrides=overrides, published=published, start="start@0")
        for name, (overrides, published) in of_start.items()
    } | {
        name: Arm(overrides=overrides, start=start)
        for name, (overrides, start) in of_arms.items()
    }


def _mix_with_easy(band: str, *, share: str) -> Overrides:
    """Returns the curriculum of a band with a share of easy problems."""
    return {
        "curriculum.name": "mixture",
        "curriculum.bands": f"easy,{band}",
        "curriculum.band_weights": f"{share},{1 - float(share)}",
    }
