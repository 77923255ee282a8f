"""Selection or improvement: what RL changes in a policy with strategies (2606.13125).

SFT shows forward solutions (F), backward ones (B), or a coin picks one of the two (FB).
A forward evaluation and a backward inversion only calculate. The other two combinations
begin with a guess, and one guess in seven is right. RL, rewarded by the answer alone,
trains on chains of 2-5, of 6-9 or (added later) of 6-15 steps. Held-out chains have 6-9
steps. Does RL then change the choice of a strategy, P(strategy | type), or how well the
policy carries it out, P(correct | strategy, type)?

From the paper: the starts, the lengths of RL, groups of 8 in batches of 32, KL
coefficient 0.05, temperature 0.7. Ours, for a policy of 0.86M parameters that has seen
nothing else: GF(7) and fixed symbols instead of GF(11) and a permutation in the prompt
(task.symbols=permuted). SFT uses fresh problems, and shows a few chains of 6-9 steps
next to 2-5, because a policy trained from scratch does not go beyond the lengths
that it saw.

Command: bash launch/reproduce.sh selection
Results: docs/findings/selection.md
"""

from rlvr_jax.config import (
    Arm,
    Config,
    EvalConfig,
    Experiment,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.tasks import ChainMix, FiniteFieldTask

_SHORT = "2,3,4,5"
_LONGER = "6,7,8,9,10,11,12,13,14,15"


def get_config() -> Config:
    """Returns the recipe: FB, and RL on 6-9 steps."""
    asked = ChainMix(chain_lengths=(6, 7, 8, 9), num_problems=1024)
    sampling = SamplingConfig(max_new_tokens=60)
    return Config(
        name="selection",
        task=FiniteFieldTask(
            modulus=7,
            sft=ChainMix(
                chain_lengths=(2, 3, 4, 5, 6, 7, 8, 9),
                chain_length_weights=(1.0, 1.0, 1.0, 1.0, 0.2, 0.2, 0.2, 0.2),
                operand_decay=0.8,
            ),
            train=asked,
            eval=ChainMix(chain_lengths=asked.chain_lengths),
        ),
        model=ModelConfig(scale_embeddings=True),
        sft=SFTConfig(
            steps=400,
            batch_size=64,
            grad_accum_steps=2,
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        train=TrainConfig(
            steps=80,
            batch_size=32,
            group_size=8,
            grad_accum_steps=2,
            sampling=SamplingConfig(max_new_tokens=60, temperature=0.7),
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=10),
            loss=LossConfig(kl_coef=0.05),
        ),
        eval=EvalConfig(
            num_problems=128, num_samples=32, batch_size=64, sampling=sampling
        ),
        prompt_pad_multiple=32,
        completion_pad_multiple=30,
    )


def get_experiment() -> Experiment:
    """Returns the paper's nine cells, and arms with unequal shares of the two types.

    `published` is pass@1 on 6-9 steps: all, inversion, evaluation.
    """
    return Experiment(
        question="Does RL choose among strategies, or improve one?",
        reference="arXiv 2606.13125, pass@1 on 6-9 steps",
        outcomes=(
            "pass@1 gained",
            "pass@1 before RL",
            "pass@1",
            "pass@1 before RL, inversion",
            "pass@1, inversion",
            "pass@1 before RL, evaluation",
            "pass@1, evaluation",
            "chosen, inversion backward",
            "chosen gained, inversion backward",
            "correct if chosen, inversion backward",
            "correct if chosen gained, inversion backward",
            "chosen, evaluation forward",
            "chosen gained, evaluation forward",
            "correct if chosen, evaluation forward",
            "correct if chosen gained, evaluation forward",
            "pass@32",
            "reward gained",
        ),
        baseline="fb_long",
        seed_sd=5.0,
        seed_sd_source="a guess, before the first run",
        starts={
            "start": {},
            "f_start": {"task.sft.strategies": "forward"},
            "b_start": {"task.sft.strategies": "backward"},
        },
        arms=_arms(),
        reduced={
            "model.num_layers": "1",
            "model.hidden_size": "32",
            "model.intermediate_size": "32",
            "sft.steps": "8",
            "train.steps": "4",
            "train.batch_size": "4",
            "eval.num_problems": "16",
            "eval.num_samples": "4",
        },
    )


def _arms() -> dict[str, Arm]:
    """Returns each RL length from each start, and unequal shares of the types."""
    short = {"task.train.chain_lengths": _SHORT}
    longer = {
        "task.train.chain_lengths": _LONGER,
        "train.sampling.max_new_tokens": "96",  # a step takes six
    }
    fb, f, b = "47.0 27.1 64.3", "57.0 10.7 97.1", "24.5 38.9 11.9"
    return {
        "fb_long": Arm(published=f"{fb} -> 95.7 94.1 97.1"),
        "fb_short": Arm(overrides=short, published=f"{fb} -> 60.0 32.2 91.5"),
        "f_long": Arm(start="f_start", published=f"{f} -> 58.3 11.0 99.3"),
        "f_short": Arm(
            start="f_start", overrides=short, published=f"{f} -> 48.0 9.3 91.7"
        ),
        "b_long": Arm(start="b_start", published=f"{b} -> 50.8 96.0 11.6"),
        "b_short": Arm(
            start="b_start", overrides=short, published=f"{b} -> 18.4 25.6 10.1"
        ),
        "fb_longer": Arm(overrides=longer),
        "f_longer": Arm(start="f_start", overrides=longer),
        "b_longer": Arm(start="b_start", overrides=longer),
        "fb_long_75": Arm(overrides={"task.train.type_weights": "0.75,0.25"}),
        "fb_long_90": Arm(overrides={"task.train.type_weights": "0.9,0.1"}),
    }
