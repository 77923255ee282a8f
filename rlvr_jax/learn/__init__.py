"""Learning from rewards: the mathematics, and the optimizer steps that apply it."""

from rlvr_jax.learn.advantages import group_advantages, is_split
from rlvr_jax.learn.losses import aggregation_weights, policy_loss
from rlvr_jax.learn.rewards import overlong_penalty, verdict_rewards

__all__ = [
    "aggregation_weights",
    "group_advantages",
    "is_split",
    "overlong_penalty",
    "policy_loss",
    "verdict_rewards",
]
