"""Settings of learning: rewards, optimizer and adapters."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from job_jax.config import NON_EMPTY, DecayRate
from job_jax.schema import (
    ConfigSection,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    check,
    read_other_names,
)
from rlvr_jax.config.rewards import REWARDS, check_custom_reward

ModuleName = Literal[
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardConfig(ConfigSection):
    """The reward of a completion: the sum of named parts, each times its weight.

    | part        | value                                                            |
    |-------------|------------------------------------------------------------------|
    | correctness | 1 correct, 0 incorrect                                           |
    | format      | 1 if the answer has the requested form, else 0                   |
    | confidence  | -(q - 1[correct])^2, q the confidence that the completion states |
    | random      | 0 or 1 by a coin: a control                                      |
    | wrong_label | 1 if the answer agrees with a corrupted gold: a control          |
    | judge       | a language model's grade, from 0 to 1: see `judge`               |

    A part may also be your function, as "package.module:name" (`rewards.function`), or
    a class derived from `algorithms.reward.Reward`. correctness and confidence, each at
    weight 1, make RLCR. Set task.record.ask_confidence (in the finite field
    task.ask_confidence) to make prompts request a confidence.
    """

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        names="rewards reward_funcs reward_functions reward_fn reward_func functions",
        weights="reward_weights",
    )

    # Parts that are added
    names: Annotated[tuple[str, ...], NON_EMPTY] = ("correctness",)
    weights: tuple[float, ...] = (1.0,)  # one a name
    timeout_s: PositiveFloat = 30.0  # per item of your functions; over it: no opinion
    concurrency: PositiveInt = 32  # items at a time of your `async def` functions

    def __post_init__(self) -> None:
        """Refuses weights that do not fit the names, and a repeated name."""
        super().__post_init__()
        check(
            len(self.weights) == len(self.names),
            f"weights={self.weights} has {len(self.weights)} entries, and "
            f"names={self.names} has {len(self.names)}; give each name one weight",
        )
        check(
            len(set(self.names)) == len(self.names),
            f"names={self.names} repeats a part; name it once, with the sum of its "
            "weights",
        )
        check(
            any(self.weights),
            f"weights={self.weights} makes every reward 0, which teaches nothing; "
            "give one part a weight",
        )
        for name in self.names:
            if name not in REWARDS.names:
                check_custom_reward(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(ConfigSection):
    """AdamW with global-norm clipping and a warm-up."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        learning_rate="lr rate peak_lr actor_learning_rate",
        warmup_steps="warmup lr_warmup_steps num_warmup_steps",
        schedule="lr_scheduler_type lr_scheduler lr_schedule scheduler",
        b1="beta1 adam_beta1",
        b2="beta2 adam_beta2",
        eps="adam_epsilon adam_eps",
        weight_decay="wd",
        clip_norm="max_grad_norm grad_clip gradient_clipping grad_norm_clip max_norm",
    )

    learning_rate: PositiveFloat = 1e-3  # peak
    warmup_steps: NonNegativeInt = 20  # linear from 0
    schedule: Literal["constant", "cosine"] = "constant"  # after the warm-up
    end_lr_fraction: UnitInterval = 0.1  # cosine ends at this share of the peak
    # AdamW's decay of the first moment, per step
    b1: DecayRate = 0.9
    b2: DecayRate = 0.95  # and of the second moment
    eps: PositiveFloat = 1e-8  # added to the root of the second moment
    weight_decay: NonNegativeFloat = 0.0  # per step, times the learning rate
    clip_norm: PositiveFloat = 1.0  # largest norm of the whole gradient
    moments_dtype: Literal["float32", "bfloat16"] = "float32"  # dtype of both moments
    # Non-finite steps in a row before the run stops
    max_consecutive_nonfinite: NonNegativeInt = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoRAConfig(ConfigSection):
    """Adapters that RL trains instead of the weights (arXiv 2106.09685).

    W becomes W + (alpha / rank) A B, where A [in, rank] starts random and B [rank, out]
    starts at 0. W stays fixed, or is quantized once, before the first step (arXiv
    2305.14314).
    """

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        rank="r lora_r lora_rank",
        alpha="lora_alpha",
        target_modules="lora_target_modules modules",
    )

    rank: NonNegativeInt = 0  # 0: off, all parameters are trained
    alpha: PositiveFloat = 16.0  # A B is scaled by alpha / rank
    # Adapted in every layer
    target_modules: Annotated[tuple[ModuleName, ...], NON_EMPTY] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    quantize: Literal["none", "int8", "nf4"] = "none"  # the seven matrices of a layer

    def __post_init__(self) -> None:
        """Refuses settings without adapters, and a repeated module."""
        super().__post_init__()
        changed = [
            f"{field.name}={vars(self)[field.name]}"
            for field in dataclasses.fields(self)
            if vars(self)[field.name] != field.default
        ]
        check(
            self.rank > 0 or not changed,
            f"{', '.join(changed)} without adapters; set rank to at least 1",
        )
        check(
            len(set(self.target_modules)) == len(self.target_modules),
            f"target_modules={self.target_modules} repeats a module; name each once",
        )
