"""Paired comparisons, checked against values worked out by hand."""

import numpy as np
import pytest
from scipy import stats

from job_jax.resampling import resample_counts
from rlvr_jax.metrics.bootstrap import (
    RatioStatistic,
    draw_difference,
    max_rank_p_values,
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
    """8 of 10 disagreements go one way: 2 (1 + 10 + 45) / 1024 = 0.109375."""
    one = np.array([True] * 8 + [False] * 2 + [True] * 50)
    other = np.array([False] * 8 + [True] * 2 + [True] * 50)
    assert mcnemar(one, other) == {"gained": 8, "lost": 2, "p": pytest.approx(0.109375)}
    assert mcnemar(other, one) == {"gained": 2, "lost": 8, "p": pytest.approx(0.109375)}
    assert mcnemar(one, one) == {"gained": 0, "lost": 0, "p": 1.0}
    assert mcnemar(one, ~one)["p"] == pytest.approx(2 * (1 + 60 + 1770) / 2**60)
    assert mcnemar(one[6:10], other[6:10]) == {"gained": 2, "lost": 2, "p": 1.0}


def test_mcnemar_does_not_depend_on_the_order_of_pairs():
    one, other = RNG.random((2, N)) < 0.4
    order = RNG.permutation(N)
    assert mcnemar(one[order], other[order]) == mcnemar(one, other)


def test_a_shift_common_to_all_problems_has_no_spread():
    """Pairing removes the differences between problems."""
    base = RNG.normal(size=N) * 100
    found = ratio_difference(ratio(base + 0.5), ratio(base), DRAWS)
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert found.p < 1e-6


def test_no_difference_gives_p_one():
    base = ratio(RNG.normal(size=N))
    found = ratio_difference(base, base, DRAWS)
    assert (found.mean, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(("count", "p"), [(1, 1.0), (2, 0.5), (5, 1 / 16)])
def test_few_problems_that_agree_are_no_proof(count, p):
    """The sign test of N problems that agree has p = 2^(1 - N)."""
    draws = resample_counts(count, resamples=200, seed=0)
    found = ratio_difference(ratio(np.zeros(count)), ratio(np.ones(count)), draws)
    assert (found.mean, found.p) == (-1.0, p)
    assert np.isnan([found.low, found.high]).all()


def test_p_is_never_below_that_of_the_sign_test():
    change = 1 + RNG.normal(size=7) / 100
    draws = resample_counts(7, resamples=200, seed=0)
    found = ratio_difference(ratio(change), ratio(np.zeros(7)), draws)
    assert found.p == 2**-6
    assert 0.98 < found.low < found.high < 1.02


def test_an_interval_is_as_wide_as_the_normal_says():
    """The standard error is s / sqrt(N); a 95 % interval is 1.96 of them each way."""
    change = RNG.normal(size=N)
    found = ratio_difference(ratio(change), ratio(np.zeros(N)), DRAWS)
    error = change.std() / np.sqrt(N)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.07)
    assert found.mean == pytest.approx(change.mean())


def test_a_figure_without_a_case_is_undefined():
    empty = ratio(np.zeros(N), np.zeros(N))
    found = ratio_difference(ratio(np.ones(N)), empty, DRAWS)
    assert np.isnan(found.mean)
    assert found.p == 1.0


def test_a_value_among_draws_is_students_t_of_a_sample_of_one():
    """SciPy's equal-variance test gives the same: its pooled variance is the draws'."""
    draws = RNG.normal(2.0, 3.0, size=20)
    found = draw_difference(9.0, draws)
    assert found.p == pytest.approx(stats.ttest_ind([9.0], draws).pvalue)
    interval = stats.ttest_ind([9.0], draws).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(
    ("value", "draws"), [(np.nan, [1, 2, 3]), (1.0, [1.0, np.nan, 2.0]), (1.0, [2.0])]
)
def test_what_cannot_be_compared_with_draws_is_not_told_apart(value, draws):
    assert draw_difference(value, draws).p == 1.0


def test_a_value_equal_to_constant_draws_is_not_significant():
    assert draw_difference(0.5, [0.5] * 20).p == 1.0
    assert draw_difference(0.6, [0.5] * 20).p < 1e-12


def test_rank_p_values_equal_counting_row_by_row():
    """By SciPy's z-scores. A constant statistic or one with NaN has the p-value 1."""
    values = RNG.normal(size=(21, 6))
    values[:, 4], values[3, 5] = 0.7, np.nan
    values[0, 1] = 9.0
    z = np.nan_to_num(np.abs(stats.zscore(values[:, :4], axis=0)))
    counted = [
        sum(max(row) >= z[0, column] for row in z.tolist()) / 21 for column in range(4)
    ]
    found = max_rank_p_values(values)
    assert found.tolist() == [*counted, 1.0, 1.0]
    assert found[1] == 1 / 21


def test_a_ratio_weighs_problems_by_their_cases():
    assert ratio([1.0, 0.0], np.array([1.0, 3.0])).mean() == 0.25
