"""The published objectives: PPO's clipping, CISPO and REINFORCE, GSPO's ratio."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from job_jax.schema import NonNegativeFloat, UnitInterval, check, read_other_names
from rlvr_jax.algorithms.objective import PolicyObjective

if TYPE_CHECKING:  # a config loads without JAX
    from jaxtyping import Array

    from rlvr_jax.types import PolicyTokens


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

    # Whose ratio a token has: its own, its completion's mean or product
    importance_sampling_level: Literal["token", "sequence", "trajectory"] = "token"
    surrogate: Literal["ppo", "cispo", "reinforce"] = "ppo"  # ppo: clipped ratio
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

    def gain(self, tokens: "PolicyTokens") -> "tuple[Array, dict[str, Array]]":
        """Returns the surrogate's gain, the ratio, and where it was clipped."""
        from rlvr_jax.algorithms.surrogates import (  # noqa: PLC0415
            policy_ratio,
            surrogate_gain,
        )

        ratio_BT = policy_ratio(
            tokens.logprobs - tokens.old_logprobs,
            tokens.lengths,
            level=self.importance_sampling_level,
        )
        gain_BT, low_BT, high_BT = surrogate_gain(
            ratio_BT,
            tokens.advantages,
            tokens.logprobs,
            surrogate=self.surrogate,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            clip_ratio_c=self.clip_ratio_c,
        )
        return gain_BT, {"ratio": ratio_BT, "clip_low": low_BT, "clip_high": high_BT}
