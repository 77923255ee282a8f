"""A 95 % interval misses the truth in about 2.5 % of simulated worlds on each side.

The tests bound each side from below and above. A 50 % interval misses ten times as
often, a 99.9 % interval almost never, and a shifted interval on one side only.
"""

import functools

import numpy as np
import pytest

from job_jax.resampling import resample_counts
from rlvr_jax.metrics.bootstrap import (
    RatioStatistic,
    average_interval,
    draw_difference,
    mean_difference,
    mean_interval,
    ratio_difference,
    t_interval,
    welch_interval,
)
from rlvr_jax.metrics.crossing import find_crossing

TRIALS = 1500


def misses(intervals, truth):
    """Returns the shares of worlds with the truth above and below the interval."""
    low, high = np.array([(each.low, each.high) for each in intervals]).T
    return np.mean(truth > high), np.mean(truth < low)


def is_exact(found):
    """Returns whether each side misses 2.5 % of 1500 worlds, within 2.5 errors."""
    return all(0.015 <= share <= 0.036 for share in found)


def rates(rng, problems, worlds, *, mean=0.4, samples=4):
    """Returns pass rates [problems, worlds] from a few samples; problems differ."""
    own = rng.beta(2 * mean, 2 - 2 * mean, size=(problems, worlds))
    return rng.binomial(samples, own) / samples


def test_the_mean_of_fractions_is_covered():
    """The interval is slightly too wide, because it allows for an unseen problem."""
    values = rates(np.random.default_rng(0), 100, TRIALS)
    found = mean_interval(values, resamples=1000, seed=0)
    below, above = np.mean(found.high < 0.4), np.mean(found.low > 0.4)
    for share in (below, above):
        assert 0.008 <= share <= 0.035


def test_the_mean_of_a_ratio_of_counts_is_covered():
    """P(correct | strategy), where each problem has from 1 to 8 cases."""
    rng = np.random.default_rng(1)
    found = []
    for trial in range(600):
        cases = rng.integers(1, 9, size=120)
        values = rng.binomial(cases, rng.beta(0.8, 1.2, size=120))
        found.append(
            mean_interval(values, denominators=cases, resamples=200, seed=trial)
        )
    for share in misses(found, 0.4):
        assert 0.005 <= share <= 0.04


def test_the_difference_of_two_sets_of_problems_is_covered():
    rng = np.random.default_rng(2)
    found = [
        mean_difference(
            rates(rng, 90, 1)[:, 0],
            rates(rng, 70, 1, mean=0.3)[:, 0],
            resamples=200,
            seed=trial,
        )
        for trial in range(600)
    ]
    for share in misses(found, 0.1):
        assert 0.005 <= share <= 0.04


def test_the_average_of_benchmarks_is_covered():
    """The benchmarks differ in size and rate but have equal weight."""
    rng = np.random.default_rng(3)
    groups = [rates(rng, 150, TRIALS), rates(rng, 60, TRIALS, mean=0.8)]
    found = average_interval(groups, resamples=1000, seed=0)
    for share in (np.mean(found.high < 0.6), np.mean(found.low > 0.6)):
        assert 0.006 <= share <= 0.035


def test_students_and_welchs_intervals_are_covered():
    rng = np.random.default_rng(4)
    own = 3.0 + rng.normal(size=(TRIALS, 4))
    others = 1.0 + 5.0 * rng.normal(size=(TRIALS, 6))
    assert is_exact(misses(map(t_interval, own), 3.0))
    assert is_exact(misses(map(welch_interval, own, others), 2.0))


def test_one_more_draw_is_covered():
    """`draw_difference` gives the interval of one more value beyond 20 draws."""
    rng = np.random.default_rng(5)
    draws = rng.normal(size=(TRIALS, 21))
    found = [draw_difference(each[0], each[1:]) for each in draws]
    assert is_exact(misses(found, 0.0))
    p_values = np.array([each.p for each in found])
    assert 0.035 <= np.mean(p_values < 0.05) <= 0.065


def test_the_paired_difference_of_two_arms_is_covered_and_unpaired_ones_are_not():
    """Problems differ far more than arms, so only paired intervals are this narrow."""
    rng = np.random.default_rng(6)
    counts = resample_counts(60, resamples=400, seed=0)
    ones = np.ones(60)
    found, widths = [], []
    for _ in range(800):
        base = 10.0 * rng.normal(size=60)
        arm, other = base + 0.5 + rng.normal(size=60), base + rng.normal(size=60)
        ratios = [
            RatioStatistic(numerator=values, denominator=ones)
            for values in (arm, other)
        ]
        found.append(ratio_difference(*ratios, counts))
        widths.append(found[-1].high - found[-1].low)
    for share in misses(found, 0.5):
        assert 0.012 <= share <= 0.045
    # 2 x 1.96 x sqrt(2 / 60); an unpaired interval is ten times as wide.
    assert np.mean(widths) == pytest.approx(3.92 * (2 / 60) ** 0.5, rel=0.05)


def test_where_two_curves_cross_is_covered():
    """RL always solves half of the problems; the base has a rate of 0.08 on each.

    1 - 0.92^k reaches one half at k = 8.3, so RL stops leading at k = 9.
    """
    truth = np.ceil(np.log(0.5) / np.log(0.92))
    rng = np.random.default_rng(7)
    find = functools.partial(find_crossing, resamples=100, seed=0)
    found = []
    for _ in range(250):
        before = {
            str(i): (24, int(c)) for i, c in enumerate(rng.binomial(24, 0.08, 80))
        }
        solved = rng.random(80) < 0.5
        after = {str(i): (24, 24 * int(each)) for i, each in enumerate(solved)}
        found.append(find(after, before))
    assert all(each is not None for each in found)
    above, below = misses(found, truth)
    assert truth == 9
    assert 0.005 <= above <= 0.07
    assert 0.005 <= below <= 0.07
