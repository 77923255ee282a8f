"""A completion's reward: named parts, each by its weight, and DAPO's length penalty.

Shaping changes the reward, never the verdict: groups are filtered and counted by
verdict, because a shaped all-wrong group looks split and is not.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import RewardConfig


def verdict_rewards(
    right: Bool[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns 1 for right and 0 for wrong; for unjudged, its group's mean reward.

    A completion that nobody could judge is thereby neither praised nor blamed: its
    advantage against the group mean is 0. A group without any verdict earns 0.
    """
    return _mean_where_unjudged(jnp.where(right, 1.0, 0.0), judged)


def confidence_rewards(
    confidence: Float[Array, " P G"],
    right: Bool[Array, " P G"],
    judged: Bool[Array, " P G"],
) -> Float[Array, " P G"]:
    """Returns -(q - 1[right])^2, at worst -1: RLCR's part beside the verdict.

    https://arxiv.org/abs/2507.16806. NaN is no statement of q and costs 1, as much as
    the worst statement, so that silence never pays (ours). Unjudged completions earn
    their group's mean, as they do in `verdict_rewards`.
    """
    silent_PG = jnp.isnan(confidence)
    gap_PG = jnp.where(silent_PG, 0.0, confidence) - jnp.where(right, 1.0, 0.0)
    reward_PG = jnp.where(silent_PG, -1.0, -jnp.square(gap_PG))
    return _mean_where_unjudged(reward_PG, judged)


def _mean_where_unjudged(
    reward_PG: Float[Array, " P G"], judged_PG: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns each reward, the mean of its group's judged ones where unjudged."""
    reward_PG = jnp.where(judged_PG, reward_PG, 0.0)
    count_P1 = jnp.maximum(judged_PG.sum(axis=1, keepdims=True), 1).astype(jnp.float32)
    mean_P1 = reward_PG.sum(axis=1, keepdims=True) / count_P1
    return jnp.where(judged_PG, reward_PG, mean_P1)


def reward_parts(
    right: Bool[Array, " P G"],
    judged: Bool[Array, " P G"],
    signals: Mapping[str, Float[Array, " P G"]],
    *,
    config: RewardConfig,
) -> dict[str, Float[Array, " P G"]]:
    """Returns the reward of every part that the config names, unweighted.

    `signals` are those of `rlvr_jax.rewards.read_signals`; NaN is what could not be
    read. KeyError where one is missing.
    """
    parts: dict[str, Array] = {}
    for name in config.names:
        if name == "verdict":
            parts[name] = verdict_rewards(right, judged)
        elif name == "confidence":
            parts[name] = confidence_rewards(signals[name], right, judged)
        elif name == "wrong_label":
            agrees_PG = signals[name]
            parts[name] = verdict_rewards(agrees_PG == 1.0, ~jnp.isnan(agrees_PG))
        else:
            parts[name] = signals[name]
    return parts


def compose(
    parts: Mapping[str, Float[Array, " P G"]], *, config: RewardConfig
) -> Float[Array, " P G"]:
    """Returns the sum of the named parts, each times its weight."""
    first, *others = (
        weight * parts[name]
        for name, weight in zip(config.names, config.weights, strict=True)
    )
    return sum(others, start=first)


def overlong_penalty(
    lengths: Int[Array, " B"], *, max_length: int, buffer: int
) -> Float[Array, " B"]:
    """Returns 0 up to `max_length - buffer` tokens, then a line down to -1 at the end.

    DAPO's soft overlong punishment, https://arxiv.org/abs/2503.14476:
    with |o| tokens it is clip((max_length - buffer - |o|) / buffer, -1, 0).

    Raises:
      ValueError: the buffer is empty or longer than a completion can be.
    """
    if not 0 < buffer <= max_length:
        raise ValueError(
            f"overlong buffer={buffer} must lie in 1..max_length={max_length}"
        )
    room_B = (max_length - buffer - lengths).astype(jnp.float32)
    return jnp.clip(room_B / buffer, -1.0, 0.0)
