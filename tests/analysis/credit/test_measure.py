"""The weight of tokens that change the value: known worlds, and RFGO's weights."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rlvr_jax.analysis.credit.measure import CreditComparison, compare_weights
from rlvr_jax.analysis.credit.policies import average_policies
from rlvr_jax.analysis.credit.weights import weigh_by_movement, weigh_by_surprise
from rlvr_jax.config import RFGOConfig
from rlvr_jax.learn.rfgo import rfgo_token_weights

RNG = np.random.default_rng(0)
B, T = 40, 10
CHANGES = [np.where(np.arange(T) == RNG.integers(T), 0.25, 0.0) for _ in range(B)]
EVEN = np.ones((B, T))


def on_change(weight):
    """Weights of mean 1 that give this much to tokens that change the value."""
    other = (T - weight) / (T - 1)
    return np.array([np.where(each > 0, weight, other) for each in CHANGES])


def shuffled(seed):
    rng = np.random.default_rng(seed)
    return rng.permuted(on_change(2.0), axis=1)


def test_the_ratio_is_the_weight_where_the_value_changes():
    draws = [shuffled(seed) for seed in range(20)]
    found = compare_weights({"on": on_change(2.0), "even": EVEN}, draws, CHANGES)
    on, even = found.kinds["on"], found.kinds["even"]
    assert on.ratio == pytest.approx((2.0, 2.0, 2.0))
    assert even.ratio == pytest.approx((1.0, 1.0, 1.0))
    # Shuffled weights put 2 on the change one time in ten, else 8/9.
    assert found.controls[0] == pytest.approx(1.0, abs=0.05)
    assert found.controls[1] < 1 < found.controls[2]
    assert on.beyond_controls[1] > 0.8
    assert on.num_as_high == 0
    assert even.num_as_high == sum(each >= 1 for each in found.of_draws)


def test_large_changes_count_more_than_small_ones():
    changes = [np.array([0.25, 0.01]), np.array([0.01, 0.25])]
    weights = np.array([[1.5, 0.5], [0.5, 1.5]])
    found = compare_weights({"w": weights}, [np.ones((2, 2))], changes)
    assert found.kinds["w"].ratio[0] == pytest.approx((1.5 * 0.25 + 0.5 * 0.01) / 0.26)


def test_policies_are_the_units_of_the_mean_for_any_numbers_of_problems():
    # The second policy is sampled on the first 10 problems only.
    draws = [shuffled(0), shuffled(1)]
    of_each = [
        compare_weights({"on": on_change(2.0)}, [0.5 * EVEN, EVEN], CHANGES),
        compare_weights(
            {"on": on_change(1.4)[:10]}, [draw[:10] for draw in draws], CHANGES[:10]
        ),
    ]
    written = [json.loads(json.dumps(each.to_json())) for each in of_each]
    read = [CreditComparison.from_json(each) for each in written]
    assert read == of_each
    found = average_policies(read)
    low, high = stats.ttest_1samp([2.0, 1.4], 0).confidence_interval(0.95)
    assert found.kinds["on"].ratio == pytest.approx((1.7, low, high))
    second = of_each[1].controls.value
    beyond = stats.ttest_1samp([2.0 - 0.75, 1.4 - second], 0).confidence_interval(0.95)
    assert found.kinds["on"].beyond_controls == pytest.approx(
        ((1.25 + 1.4 - second) / 2, beyond.low, beyond.high)
    )
    controls = stats.ttest_1samp([0.75, second], 0).confidence_interval(0.95)
    assert found.controls == pytest.approx(
        ((0.75 + second) / 2, controls.low, controls.high)
    )
    assert found.of_draws == [*of_each[0].of_draws, *of_each[1].of_draws]
    assert found.num_problems == B + 10
    assert found.kinds["on"].num_as_high == sum(
        each.kinds["on"].num_as_high for each in of_each
    )


def test_completions_that_change_nothing_are_reported():
    with pytest.raises(ValueError, match="no token of these completions changes"):
        compare_weights({}, [EVEN], [np.zeros(T)] * B)


def test_weights_equal_rfgos_weights():
    """RFGO's equation in float64: z of |s| |df| / rms, clipped, scaled to mean 1."""
    config = RFGOConfig(lambda_w=0.5)
    lengths = np.array([5, 4])
    f = RNG.random((2, 6, 3))
    sizes = (0.5, -0.3, 0.2)
    found = weigh_by_movement(f, sizes, lengths, config)
    read = np.concatenate([f[0, :4], f[1, :3]])
    rms = np.sqrt((read**2).mean(axis=0))
    for row, length in enumerate(lengths):
        step = np.abs(np.diff(f[row, : length - 1], axis=0))
        score = (step * np.abs(sizes) / rms).sum(axis=1)
        z = np.zeros(length)
        z[1:-1] = (score - score.mean()) / score.std()
        weight = np.clip(1 + 0.5 * z, config.weight_low, config.weight_high)
        expected = weight * length / weight.sum()
        np.testing.assert_allclose(found[row, :length], expected, rtol=1e-5)
        assert not found[row, length:].any()


def test_surprise_weighs_the_tokens_whose_features_can_move():
    config, lengths = RFGOConfig(lambda_w=0.5), np.array([5])
    logprobs = np.array([[-9.0, -0.1, -2.0, -0.5, -9.0, 0.0]])
    found = weigh_by_surprise(logprobs, lengths, config)
    mask = jnp.array([[True] * 5 + [False]])
    scored = jnp.array([[False, True, True, True, False, False]])
    expected = rfgo_token_weights(-jnp.asarray(logprobs), mask, score_mask=scored)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found[0].argmax() == 2
    assert found[0, 0] == found[0, 4]  # no feature can move there
