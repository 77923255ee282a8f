"""The settings of what is learnt from: rewards, advantages, the policy loss."""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import NOT_EMPTY, PositiveShare
from job_jax.schema import NonNegative, Positive, Section, Share, Whole, require

ModuleName = Literal[
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
]
RewardName = Literal["verdict", "format", "confidence", "random", "wrong_label"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvantageConfig(Section):
    """How a completion's reward is measured against its group."""

    baseline: Literal["group_mean", "leave_one_out"] = "group_mean"
    scale: Literal["group_std", "batch_std", "none"] = "group_std"
    guard: Literal["off", "cap", "shrink"] = "off"  # against luck on over-hard problems
    guard_cap: Positive = 1.0  # cap: no advantage of an over-hard group is larger

    def __post_init__(self) -> None:
        """Refuses a cap that nothing would be held against."""
        super().__post_init__()
        require(
            self.guard == "cap" or self.guard_cap == 1.0,
            f"guard_cap={self.guard_cap} does nothing with guard={self.guard}; set "
            "guard=cap",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardConfig(Section):
    """What a completion earns: the sum of named parts, each times its weight.

    | part        | value                                                          |
    |-------------|----------------------------------------------------------------|
    | verdict     | 1 right, 0 wrong                                               |
    | format      | 1 where the answer stands in the form asked for, else 0        |
    | confidence  | -(q - 1[right])^2, q the confidence that the completion states |
    | random      | 0 or 1 by a coin: a control                                    |
    | wrong_label | 1 where the answer agrees with a gold made wrong: a control    |

    verdict and confidence at weight 1 are RLCR.
    """

    names: Annotated[tuple[RewardName, ...], NOT_EMPTY] = ("verdict",)
    weights: tuple[float, ...] = (1.0,)  # one a name

    def __post_init__(self) -> None:
        """Refuses weights that do not fit the names, and a name told twice."""
        super().__post_init__()
        require(
            len(self.weights) == len(self.names),
            f"weights has {len(self.weights)} entries for names={self.names}; give "
            "one weight a name",
        )
        require(
            len(set(self.names)) == len(self.names),
            f"names={self.names} tells a part twice; add up its weights",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(Section):
    """One policy loss with named parts; `configs/` and the docs name the presets.

    | preset   | ratio_level | clipping | clip_low/high | aggregation         |
    |----------|-------------|----------|---------------|---------------------|
    | GRPO     | token       | ppo      | .2 / .2       | seq_mean_token_mean |
    | Dr. GRPO | token       | ppo      | .2 / .2       | constant            |
    | DAPO     | token       | ppo      | .2 / .28      | token_mean          |
    | GSPO     | sequence    | ppo      | 3e-4 / 4e-4   | seq_mean_token_mean |
    | CISPO    | token       | cispo    | 1 / 4         | token_mean          |
    | RLOO     | product     | none     | -             | seq_mean_token_mean |

    Dr. GRPO goes with advantage.scale=none, RLOO with that and
    advantage.baseline=leave_one_out. CISPO's weight thus lies in [0, 5].
    """

    ratio_level: Literal["token", "sequence", "product"] = "token"
    clipping: Literal["ppo", "cispo", "none"] = "ppo"
    clip_low: Share = 0.2  # the ratio stays above 1 - clip_low
    clip_high: NonNegative = 0.2  # and below 1 + clip_high
    aggregation: Literal[
        "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"
    ] = "token_mean"
    kl_coef: NonNegative = 0.0  # beta; 0 keeps no reference policy and costs nothing
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coef: float = 0.0
    entropy_top: PositiveShare = 1.0  # share of tokens, by entropy, that learn; 1: all

    def __post_init__(self) -> None:
        """Refuses to choose tokens where they share one ratio."""
        super().__post_init__()
        require(
            self.entropy_top == 1.0 or self.ratio_level == "token",
            f"entropy_top={self.entropy_top} leaves out tokens, and ratio_level="
            f"{self.ratio_level} moves all of a completion's by one ratio; set "
            "ratio_level=token",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoRAConfig(Section):
    """Adapters that RL trains in place of the weights (arXiv 2106.09685).

    W becomes W + (alpha / rank) A B, A [in, rank] drawn and B [rank, out] from 0; W
    stays as it was, or is quantised once, before the first step (arXiv 2305.14314).
    """

    rank: Whole = 0  # 0: off, all parameters are trained
    alpha: Positive = 16.0  # what A B is scaled by, times rank
    modules: Annotated[tuple[ModuleName, ...], NOT_EMPTY] = (  # adapted in every layer
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
        """Refuses settings of adapters that are not there, and a module told twice."""
        super().__post_init__()
        changed = [
            f"{field.name}={vars(self)[field.name]}"
            for field in dataclasses.fields(self)
            if vars(self)[field.name] != field.default
        ]
        require(
            self.rank > 0 or not changed,
            f"{', '.join(changed)} without adapters; set rank to at least 1",
        )
        require(
            len(set(self.modules)) == len(self.modules),
            f"modules={self.modules} names one twice",
        )
