"""Learning from rewards: the mathematics, and the optimizer steps that apply it."""

from rlvr_jax.algorithms.advantages.groups import (
    group_advantages,
    has_signal,
)
from rlvr_jax.algorithms.losses import aggregation_weights, policy_loss
from rlvr_jax.algorithms.rewards import (
    combine_rewards,
    confidence_rewards,
    correctness_rewards,
    overlong_penalty,
)
from rlvr_jax.learn.rfgo import rfgo_proxy_rewards, rfgo_token_weights

__all__ = [
    "aggregation_weights",
    "combine_rewards",
    "confidence_rewards",
    "correctness_rewards",
    "group_advantages",
    "has_signal",
    "overlong_penalty",
    "policy_loss",
    "rfgo_proxy_rewards",
    "rfgo_token_weights",
]
