"""The door for objectives: a gain for each token, and the settings that all share."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from job_jax.config import PositiveFraction
from job_jax.registry import OpenSection, Registry
from job_jax.schema import NonNegativeFloat, check, read_other_names

if TYPE_CHECKING:
    from rlvr_jax.types import PolicyTokens

TokenChoice = Literal["highest_entropy", "lowest_entropy", "random"]
Aggregation = Literal[
    "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"
]
_PRESETS = ("grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "rl_plus")
OBJECTIVES = Registry(
    "objective",
    {"policy": "rlvr_jax.algorithms.published:LossConfig"},
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

    aggregation: Aggregation = "token_mean"  # how tokens are averaged
    kl_coef: NonNegativeFloat = 0.0  # beta; 0 needs no reference policy
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"  # k3 is never negative
    entropy_coef: float = 0.0  # weight of an entropy bonus; below 0: a penalty
    # Learn from this share of the tokens only, chosen by `token_choice`; 1: all
    top_entropy_quantile: PositiveFraction = 1.0
    token_choice: TokenChoice = "highest_entropy"  # the other two are controls
    # Average over groups with an advantage only; false: count zero-variance groups too
    exclude_zero_variance: bool = False
    # Leave out completions cut by the length limit, also from every mean
    mask_truncated: bool = False
    # Truncated importance sampling: gains times min(pi_old / pi_sampler, cap); 0: off
    tis_cap: NonNegativeFloat = 0.0
    # Add a worked solution to each group as a row; rl_plus: with the gain of RL-PLUS
    external_traces: Literal["off", "rl_plus"] = "off"

    def __post_init__(self) -> None:
        """Refuses to choose among tokens if that has no effect or no entropies."""
        super().__post_init__()
        check(
            self.token_choice == "highest_entropy" or self.top_entropy_quantile < 1.0,
            f"token_choice={self.token_choice} does nothing if all tokens learn; set "
            "top_entropy_quantile below 1, or token_choice=highest_entropy",
        )
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
