"""Settings of learning: rewards, advantages, policy loss, optimizer."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from job_jax.config import NON_EMPTY, DecayRate, PositiveFraction
from job_jax.registry import OpenSection, Registry
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

if TYPE_CHECKING:
    from rlvr_jax.types import PolicyTokens

ModuleName = Literal[
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
]
Aggregation = Literal[
    "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvantageConfig(ConfigSection):
    """How a completion's reward is compared with its group."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        baseline="adv_estimator advantage_estimator",
        normalize="scale_rewards norm_adv normalise",
    )

    baseline: Literal["group_mean", "rloo"] = "group_mean"
    normalize: Literal["group", "batch", "none"] = "group"
    # Limits advantages from lucky answers on over-hard problems
    overhard_advantage: Literal["off", "clip", "shrink"] = "off"
    overhard_clip: PositiveFloat = 1.0  # clip: largest advantage in an over-hard group

    def __post_init__(self) -> None:
        """Refuses a cap that has no effect."""
        super().__post_init__()
        check(
            self.overhard_advantage == "clip" or self.overhard_clip == 1.0,
            f"overhard_clip={self.overhard_clip} does nothing with "
            f"overhard_advantage={self.overhard_advantage}; set "
            "overhard_advantage=clip",
        )


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

    A part may also be your function, as "package.module:name": see
    `rollouts.own_rewards`. correctness and confidence, each at weight 1, make RLCR. Set
    task.record.ask_confidence (in the finite field task.ask_confidence) to make prompts
    request a confidence.
    """

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        names="rewards reward_funcs reward_functions reward_fn reward_func functions",
        weights="reward_weights",
    )

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


_PRESETS = ("grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "rl_plus")
OBJECTIVES = Registry(
    "objective",
    {"policy": "rlvr_jax.config.learn:LossConfig"},
    {
        name: f"{name} is a preset for a recipe: "
        f"TrainConfig(**rlvr_jax.learn.presets.{name}())"
        for name in _PRESETS
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyObjective(OpenSection):
    """The objective of RL: a subclass computes each token's gain, this class the rest.

        loss = sum_it w_it (-gain_it + kl_coef kl_it - entropy_coef H_it)

    with w the weights of `aggregation`. `train.loss.name` takes "policy" (LossConfig)
    or your subclass as "package.module:Class", whose fields are its options.

    Example (`mine.py` next to the recipe, `--config.train.loss.name=mine:Sigmoid`):

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Sigmoid(PolicyObjective):
            temperature: PositiveFloat = 1.0

            def gain(self, tokens):
                ratio_BT = jnp.exp(tokens.logprobs - tokens.old_logprobs)
                gate_BT = jax.nn.sigmoid(self.temperature * (ratio_BT - 1.0))
                gain_BT = 4.0 / self.temperature * gate_BT * tokens.advantages
                return gain_BT, {"gate": gate_BT}
    """

    registry: ClassVar[Registry] = OBJECTIVES

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        aggregation="loss_type loss_agg_mode",
        kl_coef=(
            "beta kl kl_loss_coef init_kl_coef kl_coeff kl_penalty kl_weight kl_beta"
        ),
        kl_estimator="kl_loss_type",
        entropy_coef="entropy_coeff entropy_bonus ent_coef entropy_weight",
        mask_truncated="mask_truncated_completions",
    )

    aggregation: Aggregation = "token_mean"
    kl_coef: NonNegativeFloat = 0.0  # beta; 0 needs no reference policy
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coef: float = 0.0
    # Learn from this share of the tokens only, the ones of highest entropy; 1: all
    top_entropy_quantile: PositiveFraction = 1.0
    # Average over groups with an advantage only; false: count zero-variance groups too
    exclude_zero_variance: bool = False
    # Leave out completions cut by the length limit, also from every mean
    mask_truncated: bool = False
    # Truncated importance sampling: gains times min(pi_old / pi_sampler, cap); 0: off
    tis_cap: NonNegativeFloat = 0.0
    # Add a worked solution to each group as a row; gain: `surrogates.external_gain`
    external_traces: Literal["off", "rl_plus"] = "off"

    def __post_init__(self) -> None:
        """Refuses to choose tokens by entropy if the policy did not sample them all."""
        super().__post_init__()
        check(
            self.top_entropy_quantile == 1.0 or not self.has_external_traces,
            f"top_entropy_quantile={self.top_entropy_quantile} chooses among tokens "
            f"that the policy sampled, and external_traces={self.external_traces} "
            "adds tokens that it did not; set top_entropy_quantile=1, or "
            "external_traces=off",
        )

    @property
    def reads_policy_before_update(self) -> str:
        """Returns the option that needs log-probabilities before the update, or ""."""
        if self.has_external_traces:
            return f"external_traces={self.external_traces}"
        return f"tis_cap={self.tis_cap}" if self.tis_cap else ""

    @property
    def has_external_traces(self) -> bool:
        """Returns whether RL also learns from external traces."""
        return self.external_traces != "off"

    @property
    def has_token_gains(self) -> bool:
        """Returns whether tokens of one completion may gain differently."""
        return True

    def gain(self, tokens: "PolicyTokens") -> tuple[Any, dict[str, Any]]:
        """Returns each token's gain [B, T], and diagnostics [B, T] by name.

        A diagnostic is logged as loss/NAME: its mean over true tokens. The caller
        ignores padding in both.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(PolicyObjective):
    """The published policy losses; `learn.presets` names their settings.

    | surrogate | gain of a token with ratio rho and advantage A                  |
    |-----------|-----------------------------------------------------------------|
    | ppo       | min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)            |
    | cispo     | stop_gradient(clip(rho, 1 - clip_low, 1 + clip_high)) A log pi  |
    | reinforce | rho A                                                           |

    With `clip_ratio_c`, ppo's gain at A < 0 is at least clip_ratio_c * A (dual clip,
    https://arxiv.org/abs/1912.09729). `importance_sampling_level` says what rho is: the
    token's ratio (token), the geometric mean of the ratios of its completion
    (sequence), or their product (trajectory: the completion is one action).
    """

    other_names: ClassVar[Mapping[str, str]] = {
        **PolicyObjective.other_names,
        **read_other_names(
            clip_low=(
                "clip epsilon clip_eps eps_clip clip_range cliprange clip_ratio "
                "clip_ratio_low epsilon_low"
            ),
            clip_high="clip_ratio_high epsilon_high clip_higher",
            clip_ratio_c="delta dual_clip",
        ),
    }

    importance_sampling_level: Literal["token", "sequence", "trajectory"] = "token"
    surrogate: Literal["ppo", "cispo", "reinforce"] = "ppo"
    clip_low: UnitInterval = 0.2  # the ratio is clipped at 1 - clip_low
    clip_high: NonNegativeFloat = 0.2  # and at 1 + clip_high
    clip_ratio_c: NonNegativeFloat = 0.0  # bound of the ratio if A < 0, as 3; 0: none

    def __post_init__(self) -> None:
        """Refuses a bound without effect, and a choice among tokens of one ratio."""
        super().__post_init__()
        check(
            self.clip_ratio_c == 0 or self.surrogate == "ppo",
            f"clip_ratio_c={self.clip_ratio_c} does nothing with surrogate="
            f"{self.surrogate}; set surrogate=ppo",
        )
        check(
            self.clip_ratio_c == 0 or self.clip_ratio_c > 1.0,
            f"clip_ratio_c={self.clip_ratio_c} would bound a ratio of 1; set it above "
            "1, such as 3, or to 0",
        )
        check(
            self.top_entropy_quantile == 1.0
            or self.importance_sampling_level == "token",
            f"top_entropy_quantile={self.top_entropy_quantile} leaves out tokens, and "
            f"importance_sampling_level={self.importance_sampling_level} gives all "
            "tokens of a completion one ratio; set importance_sampling_level=token",
        )

    @property
    def has_token_gains(self) -> bool:
        """Returns whether tokens of one completion may gain differently.

        With one ratio a completion they gain the same, except in CISPO: it multiplies
        the ratio by each token's log-probability.
        """
        return self.importance_sampling_level == "token" or self.surrogate == "cispo"


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
    schedule: Literal["constant", "cosine"] = "constant"
    end_lr_fraction: UnitInterval = 0.1  # cosine ends at this share of the peak
    b1: DecayRate = 0.9
    b2: DecayRate = 0.95
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: PositiveFloat = 1.0
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
