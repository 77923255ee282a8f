"""Formulas that a loss sums over tokens: a token's gain, and its cost in KL.

Every array is 0 in padding; these functions do not know where padding is.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.types import PolicyTokens

# exp(20) = 5e8 is larger than any useful ratio. exp(89) is infinite in float32, and
# infinity times a clipped token's zero gradient would be NaN.
_MAX_LOG_RATIO = 20.0


def external_gain(tokens: PolicyTokens) -> Float[Array, " B T"]:
    """Returns the gain of each token of an external trace, which is never clipped.

        2 pi / (pi_old + w) * A * (1 - stop_gradient(pi))^0.5    w = (pi_old + 1) / 2

    This is multiple importance sampling. It is unknown who wrote the trace, so its
    probability is taken to be w, halfway between the old policy's and certainty. The
    root favors exploration: tokens that the policy already finds likely count little.
    Source: RL-PLUS, https://arxiv.org/abs/2508.00222, and its authors' code.
    """
    pi_BT, old_BT = jnp.exp(tokens.logprobs), jnp.exp(tokens.old_logprobs)
    ratio_BT = 2.0 * pi_BT / (old_BT + 0.5 * (old_BT + 1.0))
    unlikely_BT = -jnp.expm1(jax.lax.stop_gradient(tokens.logprobs))
    return ratio_BT * tokens.advantages * jnp.sqrt(jnp.maximum(unlikely_BT, 0.0))


def policy_ratio(
    log_ratio: Float[Array, " B T"],
    lengths: Int[Array, " B"],
    *,
    level: str,
) -> Float[Array, " B T"]:
    """Returns pi / pi_old for each token, from log-ratios that are 0 in padding.

    token     the token's own ratio
    sequence  the geometric mean over its completion (GSPO)
    trajectory  the ratio of the whole completion, taken as one action (RLOO)
    """
    length_B1 = jnp.maximum(lengths, 1).astype(log_ratio.dtype)[:, None]
    sum_B1 = log_ratio.sum(axis=1, keepdims=True)
    exponent = {
        "token": log_ratio,
        "sequence": sum_B1 / length_B1,
        "trajectory": sum_B1,
    }[level]
    bounded = jnp.clip(exponent, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return jnp.broadcast_to(jnp.exp(bounded), log_ratio.shape)


def surrogate_gain(
    ratio: Float[Array, " B T"],
    advantage: Float[Array, " B T"],
    logprob: Float[Array, " B T"],
    *,
    surrogate: str,
    clip_low: float,
    clip_high: float,
    clip_ratio_c: float,
) -> tuple[Float[Array, " B T"], Bool[Array, " B T"], Bool[Array, " B T"]]:
    """Returns the surrogate, and where the lower and the upper bound took effect.

    PPO's minimum is its clipped branch, a constant, exactly where the ratio is above
    the upper bound with A > 0, or below the lower bound with A < 0. Selecting the
    branch there gives the true gradient also at ties, where the gradient of a minimum
    is split between its branches. For A < 0 the dual clip bounds the ratio from above,
    which PPO's minimum does not: without it, one token that became likely despite a
    negative advantage can outweigh the batch.
    """
    if surrogate == "reinforce":
        never_BT = jnp.zeros_like(ratio, dtype=bool)
        return ratio * advantage, never_BT, never_BT
    low_BT = ratio < 1.0 - clip_low
    high_BT = ratio > 1.0 + clip_high
    if surrogate == "ppo":
        low_BT &= advantage < 0
        high_BT &= advantage > 0
    clipped_BT = jnp.where(low_BT, 1.0 - clip_low, ratio)
    clipped_BT = jnp.where(high_BT, 1.0 + clip_high, clipped_BT)
    if clip_ratio_c > 0:
        dual_BT = (advantage < 0) & (ratio > clip_ratio_c)
        clipped_BT = jnp.where(dual_BT, clip_ratio_c, clipped_BT)
        high_BT |= dual_BT
    if surrogate == "cispo":
        clipped_BT = jax.lax.stop_gradient(clipped_BT) * logprob
    return clipped_BT * advantage, low_BT, high_BT


def kl_estimate(
    log_ref: Float[Array, " B T"], *, estimator: str
) -> Float[Array, " B T"]:
    """Returns an estimate of KL(pi || pi_ref) from d = log pi_ref - log pi.

        k1  -d             unbiased; as a loss its gradient has mean zero on-policy
        k2  d^2 / 2        biased; its on-policy gradient is the KL's
        k3  exp(d) - d - 1 unbiased and never negative; GRPO's choice

    Source: http://joschu.net/blog/kl-approx.html
    """
    d_BT = jnp.clip(log_ref, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return {
        "k1": -d_BT,
        "k2": 0.5 * d_BT * d_BT,
        "k3": jnp.expm1(d_BT) - d_BT,
    }[estimator]


def truncated_weights(
    log_ratio: Float[Array, " B T"], *, cap: float
) -> tuple[Float[Array, " B T"], Bool[Array, " B T"]]:
    """Returns min(pi_old / pi_sampler, cap) from its logarithm, and where it is capped.

    As a factor of the gain it corrects for a sampler that is not quite the policy.
    Tokens that it drew too often count less. Tokens that it drew too seldom count more,
    up to the cap. No gradient flows through the weight.
    Source: https://fengyao.notion.site/off-policy-rl
    """
    log_ratio = jax.lax.stop_gradient(log_ratio)
    weight_BT = jnp.exp(jnp.minimum(log_ratio, math.log(cap)))
    return weight_BT, log_ratio > math.log(cap)
