"""Effects that a number of seeds can detect, checked against published tables."""

import math

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.metrics.power import detectable_difference


@pytest.mark.parametrize(
    ("seeds", "effect"),
    # G*Power 3.1, paired t-test, two-sided, alpha 0.05, power 0.8: Cohen's dz.
    [(3, 3.2640), (5, 1.6820), (10, 0.9960), (20, 0.6604), (34, 0.4949)],
)
def test_the_effect_equals_published_tables(seeds, effect):
    assert detectable_difference(1.0, seeds) == pytest.approx(effect, abs=2e-4)
    assert detectable_difference(0.25, seeds) == pytest.approx(effect / 4, abs=1e-4)


@pytest.mark.parametrize("seeds", [2, 5])
def test_four_of_five_draws_with_that_effect_exclude_0(seeds):
    effect = detectable_difference(1.0, seeds)
    draws = np.random.default_rng(0).normal(effect, 1.0, (20_000, seeds))
    found = stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_one_seed_finds_nothing_and_no_spread_hides_nothing():
    assert detectable_difference(1.0, 1) == math.inf
    assert detectable_difference(0.0, 5) == 0.0
