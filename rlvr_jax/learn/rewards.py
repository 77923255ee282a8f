"""A completion's reward: named, weighted parts, and DAPO's length penalty.

Shaping changes the reward, never the verdict. Groups are filtered and counted by
verdict, because the shaped rewards of an all-incorrect group differ without any being
correct.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import RewardConfig

_READ_VERDICTS = ("correctness", "confidence")  # parts that use the step's verdicts
_GRADE = ("wrong_label",)  # parts that are verdicts themselves, NaN if unverified


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
    return _mean_where_unverified(jnp.where(correct, 1.0, 0.0), verified)


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
    return _mean_where_unverified(reward_PG, verified)


def _mean_where_unverified(
    reward_PG: Float[Array, " P G"], verified_PG: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns each reward; where unverified, the mean of its group's verified ones."""
    reward_PG = jnp.where(verified_PG, reward_PG, 0.0)
    count_P1 = jnp.maximum(verified_PG.sum(axis=1, keepdims=True), 1).astype(
        jnp.float32
    )
    mean_P1 = reward_PG.sum(axis=1, keepdims=True) / count_P1
    return jnp.where(verified_PG, reward_PG, mean_P1)


def judged_completions(
    verified: Bool[Array, " P G"],
    raw_scores: Mapping[str, Float[Array, " P G"]],
    *,
    config: RewardConfig,
) -> Bool[Array, " P G"]:
    """Returns which completions have their own reward, not their group's mean.

    If a part reads verdicts, unverified completions are not judged. These parts are
    correctness, confidence and, through its corrupted golds, wrong_label. If all parts
    are others, such as a custom reward, a completion is judged if one of them scores
    it (ours). The arguments are as in `reward_parts`.

    Example:
        >>> verified = jnp.array([[True, False]])
        >>> config = RewardConfig(names=("correctness", "format"), weights=(1.0, 0.5))
        >>> judged_completions(
        ...     verified, {"format": jnp.array([[1.0, 1.0]])}, config=config
        ... ).tolist()
        [[True, False]]
    """
    judged = {
        name: verified if name in _READ_VERDICTS else ~jnp.isnan(raw_scores[name])
        for name in config.names
    }
    by_verdict = [judged[name] for name in (*_READ_VERDICTS, *_GRADE) if name in judged]
    if by_verdict:
        return jnp.stack(by_verdict).all(axis=0)
    return jnp.stack(list(judged.values())).any(axis=0)


def reward_parts(
    correct: Bool[Array, " P G"],
    verified: Bool[Array, " P G"],
    raw_scores: Mapping[str, Float[Array, " P G"]],
    *,
    config: RewardConfig,
) -> dict[str, Float[Array, " P G"]]:
    """Returns the reward of every part that the config names, unweighted.

    `raw_scores` come from `rlvr_jax.rollouts.scores.score_completions`. NaN means no
    score, and earns the mean of its group's other scores. KeyError if a part is
    missing.

    Example:
        >>> true = jnp.array([[True, True]])
        >>> config = RewardConfig(names=("correctness",))
        >>> reward_parts(true, true, {}, config=config)["correctness"].tolist()
        [[1.0, 1.0]]
    """
    parts: dict[str, Array] = {}
    for name in config.names:
        if name == "correctness":
            parts[name] = correctness_rewards(correct, verified)
        elif name == "confidence":
            parts[name] = confidence_rewards(raw_scores[name], correct, verified)
        elif name == "wrong_label":
            score_PG = raw_scores[name]
            parts[name] = correctness_rewards(score_PG == 1.0, ~jnp.isnan(score_PG))
        else:
            score_PG = raw_scores[name]
            parts[name] = _mean_where_unverified(score_PG, ~jnp.isnan(score_PG))
    return parts


def combine_rewards(
    parts: Mapping[str, Float[Array, " P G"]], *, config: RewardConfig
) -> Float[Array, " P G"]:
    """Returns the weighted sum of the named parts.

    Example:
        >>> config = RewardConfig(names=("correctness", "format"), weights=(1.0, 0.5))
        >>> parts = {"correctness": jnp.array([[1.0]]), "format": jnp.array([[1.0]])}
        >>> combine_rewards(parts, config=config).tolist()
        [[1.5]]
    """
    first, *others = (
        weight * parts[name]
        for name, weight in zip(config.names, config.weights, strict=True)
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
