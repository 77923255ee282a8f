"""What is added to a verdict's reward before advantages are taken.

Shaping changes the reward, never the verdict: groups are filtered and counted by
verdict, because a shaped all-wrong group looks split and is not.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def verdict_rewards(
    right: Bool[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns 1 for right and 0 for wrong; for unjudged, its group's mean reward.

    A completion that nobody could judge is thereby neither praised nor blamed: its
    advantage against the group mean is 0. A group without any verdict earns 0.
    """
    reward_PG = jnp.where(right & judged, 1.0, 0.0)
    count_P1 = jnp.maximum(judged.sum(axis=1, keepdims=True), 1).astype(jnp.float32)
    mean_P1 = reward_PG.sum(axis=1, keepdims=True) / count_P1
    return jnp.where(judged, reward_PG, mean_P1)


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
