"""Spearman's correlation, with values that differ by rounding as ties."""

import math

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.metrics.ranks import OverSeeds, rank_correlations

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("ties", [False, True])
def test_each_row_has_spearmans_correlation(ties):
    x, y = RNG.normal(size=(2, 5, 12))
    if ties:
        x, y = np.round(x), np.round(2 * y)
    expected = [stats.spearmanr(*row).statistic for row in zip(x, y, strict=True)]
    np.testing.assert_allclose(rank_correlations(x, y), expected)


def test_values_that_differ_by_rounding_are_ties():
    gains = [0.3 - 0.1, 0.5 - 0.3, 0.7 - 0.5, 0.9]  # three are 0.2
    assert len({*gains}) > 2
    order = [3, 1, 2, 4]
    found = rank_correlations(gains, order)
    assert found == pytest.approx(rank_correlations([0.2, 0.2, 0.2, 0.9], order))
    assert found != pytest.approx(stats.spearmanr(gains, order).statistic)


@pytest.mark.parametrize("x", [[1.0, 1.0, 1.0], [0.1 + 0.2, 0.3, 0.3], [1, np.nan, 2]])
def test_a_side_that_does_not_vary_or_is_unknown_has_none(x):
    assert math.isnan(rank_correlations(x, [1, 2, 3]))
    assert math.isnan(rank_correlations([1, 2, 3], x))


def test_the_mean_over_seeds_is_cut_at_one():
    found = OverSeeds.average({3: 1.0, 4: 1.0, 5: 0.7}).interval
    half = 4.3027 * np.std([1, 1, 0.7], ddof=1) / math.sqrt(3)
    assert found.value == pytest.approx(0.9)
    assert found.low == pytest.approx(0.9 - half, abs=1e-4)
    assert found.high == 1.0


def test_equal_seeds_have_no_interval():
    """Correlations of 1 differ in their last bit, if their numbers of arms do."""
    found = OverSeeds.average({0: 1.0, 1: 0.9999999999999999, 2: 1.0}).interval
    assert math.isnan(found.low)
    assert math.isnan(found.high)
