"""Intervals over seeds and problems: by hand, by simulation, and their limits."""

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.metrics.crossed import crossed_interval


def _anova(value_SP):
    """Returns the standard error and degrees of freedom from sums of squares."""
    S, P = value_SP.shape
    grand = value_SP.mean()
    square_s = P * ((value_SP.mean(1) - grand) ** 2).sum() / (S - 1)
    square_p = S * ((value_SP.mean(0) - grand) ** 2).sum() / (P - 1)
    rest = ((value_SP - grand) ** 2).sum()
    rest -= square_s * (S - 1) + square_p * (P - 1)
    square_r = rest / ((S - 1) * (P - 1))
    variance = (square_s + square_p - square_r) / (S * P)
    terms = [(square_s, S - 1), (square_p, P - 1), (square_r, (S - 1) * (P - 1))]
    below = sum((square / (S * P)) ** 2 / freedom for square, freedom in terms)
    return np.sqrt(variance), variance**2 / below


@pytest.mark.parametrize("shape", [(5, 72), (8, 12), (3, 40)])
def test_it_is_the_analysis_of_variance(shape):
    rng = np.random.default_rng(1)
    S, P = shape
    value_SP = (
        2 * rng.normal(size=(S, 1)) + rng.normal(size=P) + 0.1 * rng.normal(size=shape)
    )
    error, freedom = _anova(value_SP)
    half = stats.t.ppf(0.975, freedom) * error
    found = crossed_interval(value_SP)
    assert found.value == pytest.approx(value_SP.mean())
    assert found.high - found.value == pytest.approx(half)
    assert found.value - found.low == pytest.approx(half)


@pytest.mark.parametrize(
    "sizes", [(1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (0.3, 1.0, 1.0)]
)
def test_it_contains_the_true_mean_about_95_times_in_100(sizes):
    """Student's interval over seeds alone does not, unless problems are alike."""
    rng, inside, by_seed = np.random.default_rng(2), [], []
    for _ in range(1000):
        of_seed, of_problem, of_rest = sizes
        value_SP = (
            of_seed * rng.normal(size=(5, 1))
            + of_problem * rng.normal(size=72)
            + of_rest * rng.normal(size=(5, 72))
        )
        found = crossed_interval(value_SP)
        inside.append(found.low <= 0 <= found.high)
        by_seed.append(stats.ttest_1samp(value_SP.mean(1), 0).pvalue > 0.05)
    assert 0.92 < np.mean(inside) < 0.98
    if sizes == (0.0, 1.0, 1.0):
        assert np.mean(by_seed) < 0.8


def test_its_variance_is_at_least_the_larger_of_the_two():
    """Seeds that undo each other by problem leave a negative estimate of variance."""
    value_SP = np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.1]])
    found = crossed_interval(value_SP)
    half = stats.t.ppf(0.975, 1) * value_SP.mean(1).std(ddof=1) / np.sqrt(2)
    assert found.high - found.value >= half


def test_numbers_that_are_all_equal_have_no_interval():
    found = crossed_interval(np.full((5, 72), 0.7))
    assert found.value == pytest.approx(0.7)
    assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (5,), (2, 2, 2)])
def test_it_needs_seeds_and_problems(shape):
    with pytest.raises(ValueError, match="give \\[S, P\\] with at least two"):
        crossed_interval(np.zeros(shape))
