"""Advantages: groups with and without a signal, and TRL's numbers."""

import itertools
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.algorithms.advantages.groups import (
    clip_group_advantages,
    group_advantages,
    has_signal,
    scale_by_confidence,
)

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "trl_losses.json").read_text()
)
BASELINES = ("group_mean", "rloo")
SCALES = ("group", "batch", "none")
SETTINGS = list(itertools.product(BASELINES, SCALES))


def _random_rewards(groups: int = 5, size: int = 8) -> jnp.ndarray:
    rng = np.random.default_rng(3)
    return jnp.asarray(rng.uniform(-1, 2, (groups, size)), jnp.float32)


@pytest.mark.parametrize(("baseline", "scale"), SETTINGS)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.7, -0.3, 1000.7])
@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_unanimous_group_is_silent(baseline, scale, reward, size):
    """Exact zeros, even if the mean of equal floats differs from them."""
    rewards = jnp.full((1, size), reward)
    advantages = group_advantages(rewards, baseline=baseline, normalize=scale)
    np.testing.assert_array_equal(advantages, np.zeros((1, size)))
    assert not has_signal(rewards).any()


@pytest.mark.parametrize(("baseline", "scale"), SETTINGS)
def test_rounding_alone_is_not_a_preference(baseline, scale):
    """0.1 + 0.6 and 0.7 differ in float32's last place, but count as equal."""
    reward = np.float32(0.7)
    rewards = jnp.asarray([[reward, np.nextafter(reward, np.float32(1)), reward]])
    assert rewards[0, 1] > rewards[0, 0]
    advantages = group_advantages(rewards, baseline=baseline, normalize=scale)
    np.testing.assert_array_equal(advantages, np.zeros((1, 3)))


def test_one_success_in_eight():
    """At p = 1/8: sqrt((1 - p) / p) = sqrt(7) and -sqrt(p / (1 - p)) = -1 / sqrt(7)."""
    rewards = jnp.array([[0.0, 0, 0, 1, 0, 0, 0, 0]])
    advantages = np.asarray(group_advantages(rewards)[0])
    np.testing.assert_allclose(advantages[3], 2.6457513, rtol=1e-6)
    np.testing.assert_allclose(np.delete(advantages, 3), -0.3779645, rtol=1e-6)


@pytest.mark.parametrize("right", range(1, 8))
def test_binary_rewards_follow_the_pass_rate(right):
    """A+ = sqrt((1-p)/p), A- = -sqrt(p/(1-p)): rare outcomes get more."""
    p = right / 8
    rewards = jnp.array([[1.0] * right + [0.0] * (8 - right)])
    expected = [((1 - p) / p) ** 0.5] * right + [-((p / (1 - p)) ** 0.5)] * (8 - right)
    np.testing.assert_allclose(group_advantages(rewards)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(("baseline", "scale"), SETTINGS)
def test_advantages_of_a_group_sum_to_zero(baseline, scale):
    advantages = group_advantages(_random_rewards(), baseline=baseline, normalize=scale)
    np.testing.assert_allclose(advantages.sum(axis=1), 0.0, atol=2e-6)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_leave_one_out_is_the_mean_of_the_others(size):
    """Both sides of r_i - mean of others = G / (G - 1) * (r_i - mean)."""
    rewards = _random_rewards(size=size)
    loo = group_advantages(rewards, baseline="rloo", normalize="none")
    centered = group_advantages(rewards, normalize="none")
    np.testing.assert_allclose(loo, size / (size - 1) * centered, rtol=1e-6)
    r = np.asarray(rewards, np.float64)
    others = [np.delete(r, i, axis=1).mean(axis=1) for i in range(size)]
    np.testing.assert_allclose(loo, r - np.stack(others, axis=1), atol=1e-6)


def test_group_std_gives_unit_variance_whatever_the_spread():
    rewards = _random_rewards() * jnp.array([[1e-3], [1.0], [50.0], [2.0], [0.1]])
    advantages = group_advantages(rewards)
    np.testing.assert_allclose(advantages.std(axis=1), 1.0, rtol=1e-4)


def test_advantage_ignores_a_shift_and_a_scale_of_its_group():
    rewards = _random_rewards()
    moved = 3.0 * rewards + jnp.array([[1.0], [2.0], [-3.0], [0.5], [7.0]])
    np.testing.assert_allclose(
        group_advantages(moved), group_advantages(rewards), atol=2e-5
    )


def test_batch_std_uses_one_unit_and_keeps_silent_groups_silent():
    """Rewards 0 1 | 1 1: std over all is sqrt(3)/4, group 0 is centered to -+1/2."""
    rewards = jnp.array([[0.0, 1.0], [1.0, 1.0]])
    advantages = group_advantages(rewards, normalize="batch")
    unit = 3**0.5 / 4
    np.testing.assert_allclose(
        advantages, [[-0.5 / unit, 0.5 / unit], [0, 0]], rtol=1e-6
    )


def test_split_is_told_group_by_group():
    rewards = jnp.array([[0.0, 0.0], [0.0, 1.0], [0.7, 0.7], [0.5, 0.5 + 1e-5]])
    np.testing.assert_array_equal(has_signal(rewards), [False, True, False, True])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"normalize": "std"},
            "normalize='std'; it must be one of group, batch, none; did you mean "
            "'batch'?",
        ),
        ({"baseline": "loo"}, "baseline='loo'; it must be one of group_mean, rloo"),
    ],
)
def test_unknown_setting_is_refused(setting, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        group_advantages(jnp.ones((1, 2)), **setting)


@pytest.mark.parametrize(
    "rewards",
    [
        [[1, 0], [1, 1]],
        np.array([[1, 0], [1, 1]]),
        np.array([[1.0, 0.0], [1.0, 1.0]]),
        np.array([[True, False], [True, True]]),
    ],
    ids=["list", "int64", "float64", "bool"],
)
def test_rewards_may_be_of_any_kind(rewards):
    found = group_advantages(rewards)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, [[1, -1], [0, 0]])
    np.testing.assert_array_equal(has_signal(rewards), [True, False])


def test_rewards_of_another_shape_are_refused():
    with pytest.raises(
        ValueError, match=r"rewards has shape \(2,\); it must be \[P, G"
    ):
        group_advantages([1, 0])


def _reference(rewards, judged, baseline, normalize):
    """Advantages in float64, group by group, for judged members only."""
    found = np.zeros(rewards.shape)
    for p, mask in enumerate(judged):
        group = rewards[p, mask].astype(np.float64)
        size = len(group)
        if size < 2 or group.std() <= 1e-6:
            continue
        if baseline == "group_mean":
            centered = group - group.mean()
        else:
            others = [np.delete(group, i).mean() for i in range(size)]
            centered = group - np.array(others)
        unit = {
            "group": group.std(),
            "batch": rewards[judged].astype(np.float64).std(),
            "none": 1.0,
        }[normalize]
        found[p, mask] = centered / unit
    return found


@pytest.mark.parametrize(("baseline", "scale"), SETTINGS)
def test_every_estimate_is_over_the_judged_members_of_a_group(baseline, scale):
    """0 to 8 judged of 8, among them groups of one and groups of equal rewards."""
    rewards = np.array(_random_rewards(groups=40))
    rng = np.random.default_rng(7)
    judged = rng.uniform(size=rewards.shape) < np.linspace(0, 1, 40)[:, None]
    rewards[::5] = np.round(rewards[::5])
    rewards[3] = np.where(judged[3], 0.7, rewards[3])
    found = group_advantages(rewards, judged, baseline=baseline, normalize=scale)
    expected = _reference(rewards, judged, baseline, scale)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    assert not np.asarray(found)[~judged].any()
    np.testing.assert_array_equal(has_signal(rewards, judged), expected.any(axis=1))
    # The reward of an unjudged completion has no effect.
    other = np.where(judged, rewards, 1000.0)
    again = group_advantages(other, judged, baseline=baseline, normalize=scale)
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize(("baseline", "scale"), SETTINGS)
def test_a_group_of_judged_members_alone_is_the_group(baseline, scale):
    rewards = _random_rewards()
    whole = group_advantages(rewards, baseline=baseline, normalize=scale)
    np.testing.assert_array_equal(
        group_advantages(
            rewards, np.ones((5, 8), bool), baseline=baseline, normalize=scale
        ),
        whole,
    )
    # Unjudged siblings do not change the others.
    padded = np.concatenate([rewards, np.full((5, 3), 0.25, np.float32)], axis=1)
    judged = np.arange(11) < 8
    fewer = group_advantages(
        padded, np.tile(judged, (5, 1)), baseline=baseline, normalize=scale
    )
    np.testing.assert_allclose(fewer[:, :8], whole, rtol=1e-6)


def test_every_completion_is_marked_as_judged_or_not():
    with pytest.raises(ValueError, match=r"judged has shape \(2,\); it must be \[P=1,"):
        group_advantages([[1, 0]], [True, False])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reward_that_is_no_number_is_never_silent(bad):
    """Refused if its value is known; while tracing it passes, in its group only."""
    rewards = np.float32([[0, 1], [1, bad]])
    for function in (group_advantages, has_signal):
        with pytest.raises(
            ValueError, match=rf"rewards\[1, 1\] is {bad}; rewards must"
        ):
            function(rewards)
    traced = jax.jit(group_advantages)(rewards)
    np.testing.assert_array_equal(traced, [[-1, 1], [np.nan, np.nan]])


def _trl_shrinkage(rewards: np.ndarray, scale: str) -> np.ndarray:
    """Returns TRL's advantage / ours: std / (std * sqrt(n / (n - 1)) + 1e-4)."""
    axis, n = (1, rewards.shape[1]) if scale == "group" else (None, rewards.size)
    std = rewards.std(axis=axis, keepdims=True)
    return std / (std * (n / (n - 1)) ** 0.5 + 1e-4)


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_scaled_advantages_match_trl_up_to_its_std(scale):
    """TRL divides by the sample std plus 1e-4, we by the population std."""
    rewards = np.array(GOLDEN["rewards"])
    ours = group_advantages(jnp.asarray(rewards, jnp.float32), normalize=scale)
    translated = np.asarray(ours) * _trl_shrinkage(rewards, scale)
    np.testing.assert_allclose(translated, GOLDEN["advantages"][scale], atol=1e-6)


@pytest.mark.parametrize(
    ("baseline", "name"), [("group_mean", "none"), ("rloo", "leave_one_out")]
)
def test_unscaled_advantages_match_trl(baseline, name):
    rewards = jnp.array(GOLDEN["rewards"])
    ours = group_advantages(rewards, baseline=baseline, normalize="none")
    np.testing.assert_allclose(ours, GOLDEN["advantages"][name], atol=1e-6)


def test_a_cap_holds_the_luckiest_of_an_over_hard_group_and_leaves_the_rest_alone():
    """One success in eight is worth sqrt(7) and each failure -1 / sqrt(7).

    Scaled to a cap of 1: 1 and -1/7, still zero in sum.
    """
    lucky = [0.0, 0, 0, 1, 0, 0, 0, 0]
    advantages = group_advantages(jnp.array([lucky, lucky]))
    held = np.asarray(
        clip_group_advantages(advantages, jnp.array([True, False]), max_abs=1.0)
    )
    np.testing.assert_allclose(
        held[0], np.array([-1 / 7] * 3 + [1] + [-1 / 7] * 4), 1e-6
    )
    np.testing.assert_allclose(held[0].sum(), 0.0, atol=1e-6)
    np.testing.assert_array_equal(held[1], advantages[1])


@pytest.mark.parametrize("cap", [0.5, 1.0, 2.0, 5.0])
def test_a_cap_changes_no_sign_no_order_and_no_group_within_it(cap):
    advantages = group_advantages(_random_rewards())
    held = clip_group_advantages(advantages, jnp.ones(5, bool), max_abs=cap)
    assert float(jnp.abs(held).max()) <= cap * (1 + 1e-6)
    ratio = np.asarray(held / advantages)
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones((1, 8)), rtol=1e-5)
    within = np.asarray(jnp.abs(advantages).max(axis=1)) <= cap
    np.testing.assert_array_equal(held[within], advantages[within])


def test_a_silent_group_stays_silent_under_either_guard():
    silent = group_advantages(jnp.ones((1, 4)))
    np.testing.assert_array_equal(
        clip_group_advantages(silent, jnp.array([True]), max_abs=1.0), silent
    )
    np.testing.assert_array_equal(scale_by_confidence(silent, jnp.array([0.3])), silent)


def test_shrinkage_is_the_probability_that_success_is_no_accident():
    advantages = group_advantages(_random_rewards(groups=3))
    trust = jnp.array([1.0, 0.25, 0.0])
    less = np.asarray(scale_by_confidence(advantages, trust))
    np.testing.assert_array_equal(less[0], advantages[0])
    np.testing.assert_allclose(less[1], 0.25 * np.asarray(advantages[1]))
    np.testing.assert_array_equal(less[2], np.zeros(8))
