"""Paired comparisons, against values worked out by hand."""

import numpy as np
import pytest

from job_jax.resampling import resample_counts
from rlvr_jax.metrics.bootstrap import (
    RatioStatistic,
    mcnemar,
    ratio_difference,
)

N = 60
RNG = np.random.default_rng(0)
DRAWS = resample_counts(N, resamples=2000, seed=0)


def ratio(value, per=None):
    value = np.asarray(value, np.float64)
    return RatioStatistic(
        numerator=value, denominator=np.ones(len(value)) if per is None else per
    )


def test_mcnemar_is_the_binomial_test_of_the_pairs_that_disagree():
    """8 of 10 disagreements one way: 2 (1 + 10 + 45) / 1024 = 0.109375."""
    one = np.array([True] * 8 + [False] * 2 + [True] * 50)
    other = np.array([False] * 8 + [True] * 2 + [True] * 50)
    assert mcnemar(one, other) == {"gained": 8, "lost": 2, "p": pytest.approx(0.109375)}
    assert mcnemar(other, one) == {"gained": 2, "lost": 8, "p": pytest.approx(0.109375)}
    assert mcnemar(one, one) == {"gained": 0, "lost": 0, "p": 1.0}


def test_mcnemar_does_not_depend_on_the_order_of_pairs():
    one, other = RNG.random((2, N)) < 0.4
    order = RNG.permutation(N)
    assert mcnemar(one[order], other[order]) == mcnemar(one, other)


def test_a_shift_common_to_all_problems_has_no_spread():
    """The pairing takes away what problems differ in."""
    base = RNG.normal(size=N) * 100
    found = ratio_difference(ratio(base + 0.5), [ratio(base)], DRAWS)
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert found.p < 1e-6


def test_no_difference_is_no_difference():
    base = ratio(RNG.normal(size=N))
    found = ratio_difference(base, [base, base], DRAWS)
    assert (found.mean, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_an_interval_is_as_wide_as_the_normal_says():
    """Standard error s / sqrt(N); 95 % is 1.96 of them either way."""
    change = RNG.normal(size=N)
    found = ratio_difference(ratio(change), [ratio(np.zeros(N))], DRAWS)
    error = change.std() / np.sqrt(N)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.07)
    assert found.mean == pytest.approx(change.mean())


def test_controls_are_meant_over_their_draws():
    target, low, high = (ratio(np.full(N, v)) for v in (0.9, 0.2, 0.4))
    assert ratio_difference(target, [low, high], DRAWS).mean == pytest.approx(0.6)


def test_a_figure_without_a_case_tells_nothing():
    empty = ratio(np.zeros(N), np.zeros(N))
    found = ratio_difference(ratio(np.ones(N)), [empty], DRAWS)
    assert np.isnan(found.mean)
    assert found.p == 1.0


def test_a_ratio_weighs_problems_by_their_cases():
    assert ratio([1.0, 0.0], np.array([1.0, 3.0])).mean() == 0.25
