"""Where a gradient points under token weights: planted credit, and exact numbers."""

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.analysis.credit.policies import average_policies
from rlvr_jax.analysis.gradients.measure import (
    EVEN,
    DirectionComparison,
    compare_directions,
    measure_cosines,
    shuffle_weights,
)

N, B, T, D = 40, 8, 6, 30
RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=D)
# Token 0 of every row pulls to the truth; the others pull anywhere.
PULLS = RNG.normal(size=(N, B, T, D))
PULLS[:, :, 0] = TRUTH
CREDIT = np.where(np.arange(T) == 0, 3.0, 0.6) * np.ones((B, 1))
MISPLACED = CREDIT[:, ::-1]
LENGTHS = np.full(B, T)


def gradient_of(batch):
    """A policy's gradient as a function of the token weights, in two arrays."""

    def gradient(weights):
        pull = np.einsum("bt,btd->d", weights, PULLS[batch]).astype(np.float32)
        return {"first": pull[:7], "rest": [pull[7:]]}

    return gradient


def cosines(weights):
    reference = {"first": np.float32(TRUTH[:7]), "rest": [np.float32(TRUTH[7:])]}
    return [measure_cosines(gradient_of(n), reference, [weights])[0] for n in range(N)]


def test_weights_on_the_tokens_that_teach_turn_the_gradient_to_the_truth():
    draws = [cosines(shuffle_weights(CREDIT, LENGTHS, seed=seed)) for seed in range(10)]
    found = compare_directions(
        {
            EVEN: cosines(np.ones((B, T))),
            "credit": cosines(CREDIT),
            "misplaced": cosines(MISPLACED),
        },
        np.array(draws),
    )
    assert found.num_batches == N
    assert found.kinds["credit"].less_even.low > 0.1
    assert found.kinds["credit"].less_draws.low > 0.1
    assert found.kinds["credit"].num_as_high == 0
    assert found.kinds["misplaced"].less_even.high < -0.1
    assert found.kinds["misplaced"].num_as_high == 10
    assert found.kinds[EVEN].less_even.value == 0


def test_a_cosine_is_that_of_all_parameters_whatever_their_size():
    weights = RNG.random((B, T))
    (found,) = measure_cosines(
        gradient_of(3), gradient_of(4)(1e-3 * weights), [1e3 * weights]
    )
    ours, theirs = (np.einsum("bt,btd->d", weights, PULLS[n]) for n in (3, 4))
    norms = np.linalg.norm(ours) * np.linalg.norm(theirs)
    assert found == pytest.approx(ours @ theirs / norms, rel=1e-5)


def test_intervals_are_paired_over_batches():
    even, ours = [0.1, 0.5, 0.3], [0.2, 0.7, 0.3]
    draws = np.array([[0.1, 0.4, 0.1], [0.3, 0.6, 0.1]])
    found = compare_directions({EVEN: even, "ours": ours}, draws)
    expected = stats.ttest_rel(ours, even).confidence_interval(0.95)
    kind = found.kinds["ours"]
    assert kind.less_even == pytest.approx((0.1, expected.low, expected.high))
    average = stats.ttest_rel(ours, [0.2, 0.5, 0.1]).confidence_interval(0.95)
    assert kind.less_draws == pytest.approx((0.4 / 3, average.low, average.high))
    assert found.of_draws == pytest.approx([0.2, 1.0 / 3])
    assert kind.num_as_high == 0
    assert found.kinds[EVEN].num_as_high == 1
    assert found.draws.value == pytest.approx(0.8 / 3)
    assert found.to_json()["kinds"]["ours"]["less_even"]["mean"] == pytest.approx(0.1)


def test_one_batch_is_not_enough():
    with pytest.raises(ValueError, match="1 of the batches have a gradient"):
        compare_directions({EVEN: [0.5]}, np.array([[0.5]]))


def test_a_random_order_keeps_each_row_its_weights_and_its_padding():
    weights = np.arange(12.0).reshape(2, 6)
    weights[1, 4:] = 0.0
    found = shuffle_weights(weights, np.array([6, 4]), seed=0)
    assert (found != weights).any(axis=1).all()
    assert sorted(found[0]) == sorted(weights[0])
    assert sorted(found[1, :4]) == sorted(weights[1, :4])
    assert not found[1, 4:].any()


def test_policies_are_the_units_of_the_mean_for_any_numbers_of_batches():
    cosines = ([0.1, 0.5, 0.3], [0.4, 0.2]), ([0.2, 0.7, 0.3], [0.5, 0.1])
    draws = np.array([[0.3, 0.6, 0.6]]), np.array([[0.3, 0.3], [0.0, 0.4]])
    of_each = [
        compare_directions({EVEN: even, "ours": ours}, of_policy)
        for even, ours, of_policy in zip(*cosines, draws, strict=True)
    ]
    written = [each.to_json() for each in of_each]
    read = [DirectionComparison.from_json(each) for each in written]
    assert [each.to_json() for each in read] == written
    found = average_policies(read)
    ours = found.kinds["ours"]
    # means 0.4 and 0.3 minus 0.1 and 0.0, the means of weights of 1
    low, high = stats.ttest_1samp([0.4, 0.3], 0).confidence_interval(0.95)
    assert ours.cosine == pytest.approx((0.35, low, high))
    low, high = stats.ttest_1samp([0.1, 0.0], 0).confidence_interval(0.95)
    assert ours.less_even == pytest.approx((0.05, low, high))
    low, high = stats.ttest_1samp([-0.1, 0.05], 0).confidence_interval(0.95)
    assert ours.less_draws == pytest.approx((-0.025, low, high))
    low, high = stats.ttest_1samp([0.5, 0.25], 0).confidence_interval(0.95)
    assert found.draws == pytest.approx((0.375, low, high))
    # 0.5 above 0.4; 0.3 as high as 0.3, 0.2 not
    assert found.of_draws == pytest.approx([0.5, 0.3, 0.2])
    assert ours.num_as_high == 2
    assert found.num_batches == 5
