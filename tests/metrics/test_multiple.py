"""p-values of paired differences, and Holm's correction."""

import math

import numpy as np
import pytest

from rlvr_jax.metrics.multiple import holm, paired_p_value


def test_a_p_value_is_students():
    """Mean 2, standard deviation 1, three values: t = 2 sqrt 3 with two degrees.

    Its two-sided tail is 1 - t / sqrt(t^2 + 2) = 1 - sqrt(12 / 14).
    """
    assert paired_p_value([1.0, 2.0, 3.0]) == pytest.approx(1 - math.sqrt(12 / 14))
    assert paired_p_value([-1.0, -2.0, -3.0]) == paired_p_value([1.0, 2.0, 3.0])
    assert math.isnan(paired_p_value([1.0]))
    assert math.isnan(paired_p_value([2.0, 2.0, 2.0]))
    assert math.isnan(paired_p_value([0.4 - 0.3, 0.6 - 0.5, 0.8 - 0.7]))  # rounding


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        # 4 x 0.005, 3 x 0.01, 2 x 0.03, 1 x 0.04 -> 0.06, which is larger.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.2], [0.2]),
        ([0.6, 0.7], [1.0, 1.0]),
        ([0.02, math.nan, 0.01], [0.02, math.nan, 0.02]),
        ([], []),
    ],
)
def test_holm_by_hand(p_values, corrected):
    np.testing.assert_allclose(holm(p_values), corrected)


def test_under_nulls_holm_finds_something_in_one_of_twenty_families():
    """Uncorrected, a family of nine independent nulls has a p below 0.05 in 37 %."""
    draws = np.random.default_rng(0).uniform(size=(4000, 9))
    found = np.mean([(holm(p) < 0.05).any() for p in draws])
    assert found == pytest.approx(0.05, abs=0.01)  # standard deviation 0.0034
    assert np.mean((draws < 0.05).any(axis=1)) == pytest.approx(0.37, abs=0.03)
