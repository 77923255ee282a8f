"""Rewards on paper values: parts, their sum, and DAPO's overlong penalty."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.algorithms.rewards import (
    combine_rewards,
    confidence_rewards,
    correctness_rewards,
    overlong_penalty,
)
from rlvr_jax.config import RewardConfig
from rlvr_jax.rewards.parts import judged_completions, reward_parts

RIGHT = jnp.array([[True, False, False, True]])
JUDGED = jnp.array([[True, True, True, False]])
NAN = float("nan")
MINE, OTHER = "math:pow", "math:copysign"  # used as custom rewards


def test_penalty_is_flat_then_linear_then_flat():
    """Room for 20 tokens; each of the last 4 costs a quarter."""
    lengths = jnp.array([0, 1, 15, 16, 17, 18, 19, 20, 21, 99])
    penalty = overlong_penalty(lengths, max_length=20, buffer=4)
    expected = [0, 0, 0, 0, -0.25, -0.5, -0.75, -1, -1, -1]
    np.testing.assert_array_equal(penalty, np.array(expected, np.float32))


def test_buffer_of_the_whole_length_charges_from_the_first_token():
    penalty = overlong_penalty(jnp.array([0, 1, 2, 4]), max_length=4, buffer=4)
    np.testing.assert_array_equal(penalty, np.float32([0, -0.25, -0.5, -1]))


@pytest.mark.parametrize("buffer", [0, -1, 21])
def test_impossible_buffer_is_refused_with_its_value(buffer):
    with pytest.raises(ValueError, match=f"buffer={buffer} must lie in 1..max_length"):
        overlong_penalty(jnp.array([1]), max_length=20, buffer=buffer)


def test_the_default_reward_is_the_verdict_bit_for_bit():
    config = RewardConfig()
    parts = reward_parts(RIGHT, JUDGED, {}, config=config)
    total = combine_rewards([*parts.values()], config.weights)
    np.testing.assert_array_equal(total, correctness_rewards(RIGHT, JUDGED))
    np.testing.assert_array_equal(total, np.float32([[1, 0, 0, 1 / 3]]))


def test_confidence_costs_its_squared_gap_and_silence_the_most():
    """(.8 - 1)^2, .5^2, silent, unverified: the mean of the three."""
    q = jnp.array([[0.8, 0.5, NAN, 0.1]])
    reward = confidence_rewards(q, RIGHT, JUDGED)
    mean = -(0.04 + 0.25 + 1) / 3
    np.testing.assert_allclose(reward, [[-0.04, -0.25, -1, mean]], rtol=1e-6)


def test_verdict_and_confidence_are_rlcr():
    """R = 1[right] - (q - 1[right])^2: 1 for a sure truth, -1 for a sure error."""
    config = RewardConfig(names=("correctness", "confidence"), weights=(1, 1))
    right = jnp.array([[True, True, False, False]])
    q = jnp.array([[1.0, 0.0, 0.0, 1.0]])
    parts = reward_parts(right, right | ~right, {"confidence": q}, config=config)
    np.testing.assert_array_equal(
        combine_rewards([*parts.values()], config.weights), [[1.0, 0, 0, -1]]
    )


@pytest.mark.parametrize("p", [0.0, 0.3, 0.7, 1.0])
def test_stating_the_true_chance_is_the_best_policy(p):
    """E R = p - p (q - 1)^2 - (1 - p) q^2 is largest at q = p, where it is p^2."""
    q_Q = jnp.linspace(0.0, 1.0, 101)[None]
    yes = confidence_rewards(q_Q, q_Q >= 0, q_Q >= 0)
    no = confidence_rewards(q_Q, q_Q < 0, q_Q >= 0)
    expected = p + p * yes + (1 - p) * no
    assert float(q_Q[0, expected.argmax()]) == pytest.approx(p, abs=1e-6)
    assert float(expected.max()) == pytest.approx(p * p, abs=1e-6)


def test_parts_are_separate_and_weighted():
    names = ("correctness", "format", "random", "wrong_label")
    config = RewardConfig(names=names, weights=(1.0, 0.5, 0.0, -2.0))
    signals = {
        "format": jnp.array([[1.0, 0, 1, 1]]),
        "random": jnp.array([[0.0, 1, 1, 0]]),
        "wrong_label": jnp.array([[0.0, 1, NAN, 0]]),
    }
    parts = reward_parts(RIGHT, RIGHT | ~RIGHT, signals, config=config)
    assert list(parts) == list(names)
    np.testing.assert_array_equal(parts["format"], signals["format"])
    third = np.float32(1 / 3)
    np.testing.assert_array_equal(parts["wrong_label"], [[0, 1, third, 0]])
    total = combine_rewards([*parts.values()], config.weights)
    np.testing.assert_allclose(total, [[1.5, -2, 0.5 - 2 / 3, 1.5]], rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "judged"),
    [
        (("correctness",), [1, 1, 1, 0]),
        # A format without a verdict does not judge the completion.
        (("format", "correctness"), [1, 1, 1, 0]),
        # A missing confidence costs 1; only a missing verdict leaves it unjudged.
        (("correctness", "confidence"), [1, 1, 1, 0]),
        (("wrong_label",), [1, 1, 0, 1]),
        (("correctness", "wrong_label"), [1, 1, 0, 0]),
        # Without a part that reads verdicts, every completion with a score is judged.
        (("random",), [1, 1, 1, 1]),
        ((MINE,), [0, 1, 1, 1]),
        ((MINE, OTHER), [1, 1, 1, 1]),
        # A custom bonus without a score for some does not hide their verdict.
        (("correctness", MINE), [1, 1, 1, 0]),
    ],
)
def test_a_completion_is_judged_by_the_parts_that_read_its_verdict(names, judged):
    config = RewardConfig(names=names, weights=(1.0,) * len(names))
    scores = {
        "format": jnp.array([[1.0, 0, 0, 1]]),
        "confidence": jnp.array([[NAN, 0.5, 0.5, 0.5]]),
        "random": jnp.array([[1.0, 0, 0, 1]]),
        "wrong_label": jnp.array([[1.0, 0, NAN, 0]]),
        MINE: jnp.array([[NAN, 0.5, 0, 1]]),
        OTHER: jnp.array([[0.5, NAN, NAN, 1]]),
    }
    given = {name: scores[name] for name in names if name in scores}
    found = judged_completions(JUDGED, given, config=config)
    np.testing.assert_array_equal(found, [np.array(judged, bool)])
