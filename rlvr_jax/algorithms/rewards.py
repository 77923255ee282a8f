"""Formulas of rewards: verdicts, confidence, the sum of parts, a length penalty.

Shaping changes the reward, never the verdict. Groups are filtered and counted by
verdict, because the shaped rewards of an all-incorrect group differ without any being
correct.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def correctness_rewards(
    correct: Bool[Array, " P G"], verified: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns 1 for right, 0 for wrong, and the group's mean reward for unverified.

    A completion that could not be judged is neither rewarded nor punished: its
    advantage against the group mean is 0. A group without any verdict earns 0.

    Example:
        >>> correct = jnp.array([[True, False, False]])
        >>> verified = jnp.array([[True, True, False]])
        >>> correctness_rewards(correct, verified).tolist()
        [[1.0, 0.0, 0.5]]
    """
    return fill_with_mean(jnp.where(correct, 1.0, 0.0), verified)


def confidence_rewards(
    confidence: Float[Array, " P G"],
    correct: Bool[Array, " P G"],
    verified: Bool[Array, " P G"],
) -> Float[Array, " P G"]:
    """Returns -(q - 1[right])^2, at worst -1: RLCR's second part, next to the verdict.

    Source: https://arxiv.org/abs/2507.16806. NaN means that no q was stated; it costs
    1, as much as the worst statement, so it never pays to state nothing (ours).
    Unverified completions earn their group's mean, as in `correctness_rewards`.

    Example:
        >>> true = jnp.array([[True, True]])
        >>> confidence_rewards(jnp.array([[0.75, 0.5]]), true, true).tolist()
        [[-0.0625, -0.25]]
    """
    silent_PG = jnp.isnan(confidence)
    gap_PG = jnp.where(silent_PG, 0.0, confidence) - jnp.where(correct, 1.0, 0.0)
    reward_PG = jnp.where(silent_PG, -1.0, -jnp.square(gap_PG))
    return fill_with_mean(reward_PG, verified)


def fill_with_mean(
    rewards: Float[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns each reward; where not judged, the mean of its group's judged ones.

    A group of which nothing is judged gets 0.

    Example:
        >>> rewards = jnp.array([[1.0, 3.0, jnp.nan]])
        >>> fill_with_mean(rewards, ~jnp.isnan(rewards)).tolist()
        [[1.0, 3.0, 2.0]]
    """
    known_PG = jnp.where(judged, rewards, 0.0)
    count_P1 = jnp.maximum(judged.sum(axis=1, keepdims=True), 1).astype(jnp.float32)
    mean_P1 = known_PG.sum(axis=1, keepdims=True) / count_P1
    return jnp.where(judged, known_PG, mean_P1)


def combine_rewards(
    parts: Sequence[Float[Array, " P G"]], weights: Sequence[float]
) -> Float[Array, " P G"]:
    """Returns the weighted sum of the parts.

    Example:
        >>> one = jnp.array([[1.0]])
        >>> combine_rewards([one, one], [1.0, 0.5]).tolist()
        [[1.5]]
    """
    first, *others = (
        weight * part for part, weight in zip(parts, weights, strict=True)
    )
    return sum(others, start=first)


def overlong_penalty(
    lengths: Int[Array, " B"], *, max_length: int, buffer: int
) -> Float[Array, " B"]:
    """Returns 0 up to `max_length - buffer` tokens, then a line down to -1 at the end.

    This is DAPO's soft overlong punishment, https://arxiv.org/abs/2503.14476:
    clip((max_length - buffer - |o|) / buffer, -1, 0) for |o| tokens.

    Raises:
      ValueError: the buffer is empty, or longer than `max_length`.

    Example:
        >>> overlong_penalty(jnp.array([16, 18, 20]), max_length=20, buffer=4).tolist()
        [0.0, -0.5, -1.0]
    """
    if not 0 < buffer <= max_length:
        raise ValueError(
            f"overlong buffer={buffer} must lie in 1..max_length={max_length}"
        )
    room_B = (max_length - buffer - lengths).astype(jnp.float32)
    return jnp.clip(room_B / buffer, -1.0, 0.0)
