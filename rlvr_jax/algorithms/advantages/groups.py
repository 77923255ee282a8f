"""A completion's advantage: its reward compared with the rest of its group.

Every prompt is answered G times. The advantage says how much better a completion did
than the others on the same prompt, not how well it did. Completions that could not be
judged are left out: mean, std and size are over a group's judged members.

References:
  GRPO     https://arxiv.org/abs/2402.03300  group mean, divided by the group's std
  Dr. GRPO https://arxiv.org/abs/2503.20783  group mean, no division
  RLOO     https://arxiv.org/abs/2402.14740  mean of the other G - 1
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.algorithms.arrays import ArrayLike, as_array, check_finite, choose

# Rewards are of order 1, and float32 resolves 1e-7 of that. If a group's std is below
# this, its rewards differ only by rounding, which must not be scaled up to order 1.
_MIN_STD = 1e-6


def has_signal(
    rewards: ArrayLike, judged: ArrayLike | None = None
) -> Bool[Array, " P"]:
    """Returns which groups have a learning signal: their rewards' std exceeds 1e-6.

    The others, the zero-variance groups, do not say which completion was better.
    Rewards are [P, G], of any kind of number or bool; they are ignored where `judged`
    is False. Raises ValueError on another shape and on NaN or infinity; while tracing,
    a group with such a value counts as having a signal.

    Example:
        >>> has_signal([[1, 0], [1, 1]]).tolist()
        [True, False]
    """
    reward_PG = _as_rewards(rewards)
    judged_PG = _as_judged(judged, reward_PG)
    centered_PG = _center(_subtract_first(reward_PG, judged_PG), judged_PG)
    return _has_signal(centered_PG, judged_PG)


def group_advantages(
    rewards: ArrayLike,
    judged: ArrayLike | None = None,
    *,
    baseline: str = "group_mean",
    normalize: str = "group",
) -> Float[Array, " P G"]:
    """Returns (reward - baseline) / scale, exactly 0 in a group without a signal.

    Rewards are [P, G], of any kind of number or bool. Where `judged` is False (by
    default nowhere) the advantage is 0 and the reward enters no mean or std: G is the
    number of judged completions of a group. `baseline` is group_mean or rloo;
    `normalize` is group, batch or none. The leave-one-out baseline (rloo) is the mean
    of the other G - 1 rewards:

        r_i - mean_{j != i} r_j = G / (G - 1) * (r_i - mean_j r_j).

    With `batch` the scale is the std of the whole batch's rewards about their common
    mean. A group of one has no signal, so its advantage is 0 under every setting.

    Raises ValueError on another shape or setting, and on NaN or infinity. While
    tracing, NaN or infinity makes the advantages of its group NaN (with `batch`, all).

    Deviations from the sources:
      1. We use the population's standard deviation (divided by G, not G - 1), so one
         success in eight is worth sqrt(7) = 2.65. TRL divides by G - 1.
      2. Nothing is added to the std. The usual epsilon shrinks every advantage a little
         and still lets rounding through; `has_signal` handles rounding instead.

    Example:
        >>> print(group_advantages([[1, 0, 0, 0], [1, 1, 1, 1]]).round(2))
        [[ 1.73 -0.58 -0.58 -0.58]
         [ 0.    0.    0.    0.  ]]
        >>> group_advantages([[1, 0, 0.5]], [[True, True, False]]).tolist()
        [[1.0, -1.0, 0.0]]
    """
    reward_PG = _as_rewards(rewards)
    judged_PG = _as_judged(judged, reward_PG)
    centered_PG = _center(_subtract_first(reward_PG, judged_PG), judged_PG)
    size_P1 = _count(judged_PG)
    stretch = choose(
        "baseline",
        baseline,
        {
            "group_mean": jnp.ones_like(size_P1),
            "rloo": size_P1 / jnp.maximum(size_P1 - 1.0, 1.0),
        },
    )
    unit = choose(
        "normalize",
        normalize,
        {
            "group": _std(centered_PG, judged_PG),
            "batch": reward_PG.std(where=judged_PG),
            "none": jnp.ones_like(size_P1),
        },
    )
    split_P1 = _has_signal(centered_PG, judged_PG)[:, None]
    scaled_PG = stretch * centered_PG / jnp.where(split_P1, unit, 1.0)
    return jnp.where(split_P1 & judged_PG, scaled_PG, 0.0)


def external_advantages(
    external_rewards: ArrayLike,
    rewards: ArrayLike,
    judged: ArrayLike | None = None,
    *,
    normalize: str = "group",
) -> Float[Array, " P"]:
    """Returns (reward - mean) / scale of one external trace for each group.

    `external_rewards` are [P]; `rewards` are the [P, G] of the policy's own
    completions. Mean and scale are computed from these alone, so a trace changes no
    other advantage. A scale of 0 counts as 1: if all completions are wrong, a right
    trace gets the whole difference. In a group without judged completions there is
    nothing to compare with, and the trace's advantage is 0 (ours). Shapes and settings
    are those in `group_advantages`, but the leave-one-out baseline of a trace is the
    mean of all G. Source: RL-PLUS, https://arxiv.org/abs/2508.00222, its authors'
    `grpo_split`.

    Example:
        >>> own = [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
        >>> external_advantages([1, 1, 1], own).round(2).tolist()
        [1.7300000190734863, 1.0, 0.0]
    """
    reward_PG = _as_rewards(rewards)
    judged_PG = _as_judged(judged, reward_PG)
    sizes = {"P": len(reward_PG)}
    external_P = as_array("external_rewards", external_rewards, "P", sizes=sizes)
    check_finite("external_rewards", external_P)
    none_P1 = jnp.zeros((len(external_P), 1), bool)
    counted_PH = _subtract_first(
        jnp.concatenate([reward_PG, external_P[:, None]], axis=1),
        jnp.concatenate([judged_PG, none_P1], axis=1),
    )
    own_PG, trace_P1 = counted_PH[:, :-1], counted_PH[:, -1:]
    unit = choose(
        "normalize",
        normalize,
        {
            "group": _std(_center(own_PG, judged_PG), judged_PG),
            "batch": reward_PG.std(where=judged_PG),
            "none": jnp.ones_like(trace_P1),
        },
    )
    advantage_P1 = (trace_P1 - _mean(own_PG, judged_PG)) / jnp.where(
        unit > _MIN_STD, unit, 1.0
    )
    return jnp.where(judged_PG.any(axis=1), advantage_P1[:, 0], 0.0)


def mask_unjudged(
    advantages: Float[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns the advantages, with 0 where a completion is not judged."""
    return jnp.where(judged, advantages, 0.0)


def clip_group_advantages(
    advantages: Float[Array, " P G"], overhard: Bool[Array, " P"], *, max_abs: float
) -> Float[Array, " P G"]:
    """Returns the advantages, with over-hard groups scaled down to at most `max_abs`.

    A' = A min(1, max_abs / max_G |A|). With group std, one lucky success in eight is
    worth 2.65. No other outcome is worth more, although success says least on these
    problems. The whole group is scaled, so it still sums to zero. Other groups do not
    change, bit for bit (ours; the harm is described in
    https://arxiv.org/abs/2605.28388).

    Example:
        >>> advantages = jnp.array([[2.0, -2.0], [2.0, -2.0]])
        >>> is_overhard = jnp.array([True, False])
        >>> clip_group_advantages(advantages, is_overhard, max_abs=1.0).tolist()
        [[1.0, -1.0], [2.0, -2.0]]
    """
    largest_P1 = jnp.abs(advantages).max(axis=1, keepdims=True)
    held_P1 = overhard[:, None] & (largest_P1 > max_abs)
    factor_P1 = max_abs / jnp.where(held_P1, largest_P1, 1.0)
    return jnp.where(held_P1, factor_P1 * advantages, advantages)


def scale_by_confidence(
    advantages: Float[Array, " P G"], confidence: Float[Array, " P"]
) -> Float[Array, " P G"]:
    """Returns each group's advantages times its `confidence`, a probability.

    The confidence is the posterior mass at pass rates that are not over-hard, before
    these completions were sampled: they must not vouch for themselves (ours).

    Example:
        >>> scale_by_confidence(jnp.array([[1.0, -1.0]]), jnp.array([0.25])).tolist()
        [[0.25, -0.25]]
    """
    return confidence[:, None] * advantages


def _as_rewards(rewards: ArrayLike) -> Float[Array, " P G"]:
    """Returns rewards in float32. Raises ValueError."""
    reward_PG = as_array(
        "rewards", rewards, "P G", hint=": a row for each prompt, its samples along it"
    )
    check_finite("rewards", reward_PG)
    return reward_PG


def _as_judged(
    judged: ArrayLike | None, rewards: Float[Array, " P G"]
) -> Bool[Array, " P G"]:
    """Returns which completions are judged, all of them by default."""
    if judged is None:
        return jnp.ones(rewards.shape, bool)
    sizes = dict(zip("PG", rewards.shape, strict=True))
    return as_array("judged", judged, "P G", dtype=bool, sizes=sizes)


def _subtract_first(
    rewards: Float[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns rewards minus their group's first, so equal rewards give exact zeros.

    Mean and std of the raw rewards round at the rewards' magnitude: the std of sixteen
    rewards of 1000.7 comes out as 6e-5, well above any sensible threshold.
    """
    first_P1 = jnp.argmax(judged, axis=1, keepdims=True)
    return rewards - jnp.take_along_axis(rewards, first_P1, axis=1)


def _center(
    rewards: Float[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P G"]:
    """Returns rewards minus their group's mean, 0 where not judged."""
    return jnp.where(judged, rewards - _mean(rewards, judged), 0.0)


def _has_signal(
    centered: Float[Array, " P G"], judged: Bool[Array, " P G"]
) -> Bool[Array, " P"]:
    # `not <=` makes NaN a signal: a NaN reward must not pass for a zero-variance group.
    return ~(_std(centered, judged)[:, 0] <= _MIN_STD)


def _std(
    centered: Float[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P 1"]:
    return jnp.sqrt(_mean(jnp.square(centered), judged))


def _mean(
    values: Float[Array, " P G"], judged: Bool[Array, " P G"]
) -> Float[Array, " P 1"]:
    """Returns each group's mean over its judged members, 0 where there is none."""
    total_P1 = jnp.where(judged, values, 0.0).sum(axis=1, keepdims=True)
    return total_P1 / _count(judged)


def _count(judged: Bool[Array, " P G"]) -> Float[Array, " P 1"]:
    """Returns how many of each group are judged, at least 1."""
    count_P1 = jnp.maximum(judged.sum(axis=1, keepdims=True), 1)
    return count_P1.astype(jnp.float32)
