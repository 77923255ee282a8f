"""Learning from rewards: the mathematics, and the optimizer steps that apply it."""

from rlvr_jax.learn.advantages import group_advantages, is_split
from rlvr_jax.learn.losses import aggregation_weights, policy_loss
from rlvr_jax.learn.rewards import (
    compose,
    confidence_rewards,
    overlong_penalty,
    reward_parts,
    verdict_rewards,
)
from rlvr_jax.learn.rfgo import rfgo_proxy_rewards, rfgo_token_weights

__all__ = [
    "aggregation_weights",
    "compose",
    "confidence_rewards",
    "group_advantages",
    "is_split",
    "overlong_penalty",
    "policy_loss",
    "reward_parts",
    "rfgo_proxy_rewards",
    "rfgo_token_weights",
    "verdict_rewards",
]
