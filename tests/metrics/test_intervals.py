"""Intervals over problems and over runs: by hand, and by how often they are right."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from job_jax.resampling import Interval
from rlvr_jax.metrics.bootstrap import (
    mean_difference,
    mean_interval,
    t_interval,
    welch_interval,
)
from sae_jax.stats.features import OutcomeMoments, cohens_d_interval
from sae_jax.stats.resample import bootstrap_interval


def ends(interval):
    return interval.low, interval.high


@pytest.mark.parametrize(
    ("correct", "problems"), [(0, 30), (30, 30), (1, 10), (3, 10), (0, 2), (120, 300)]
)
def test_problems_all_right_or_wrong_have_clopper_and_pearsons_interval(
    correct, problems
):
    """The exact binomial interval, as SciPy computes it."""
    values = [1.0] * correct + [0.0] * (problems - correct)
    found = mean_interval(values, resamples=40_000, seed=0)
    exact = scipy.stats.binomtest(correct, problems).proportion_ci(method="exact")
    assert ends(found) == pytest.approx((exact.low, exact.high), abs=0.004)
    assert found.value == pytest.approx(correct / problems)


def test_thirty_problems_none_right_leave_a_chance():
    """With a rate of 1 - 0.025^(1/30) = 11.6 %, 0 of 30 happens once in 40 times."""
    found = mean_interval([0.0] * 30, resamples=40_000, seed=0)
    assert found.low == 0.0
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 30), abs=0.003)


def test_rounding_takes_no_end_beyond_a_bound():
    """Sums of weights from a matrix product were once 1 + 2e-16."""
    found = mean_interval(np.ones((30, 4)), resamples=100, seed=0)
    assert (found.low >= 0).all()
    assert (found.high == 1.0).all()


def test_equal_fractions_leave_room_for_unseen_problems():
    """Nine problems at 1/4: an unseen one has weight w, and P(w > 0.3369) = 0.025."""
    found = mean_interval([0.25] * 9, resamples=40_000, seed=0)
    w = 1 - 0.025 ** (1 / 9)
    assert ends(found) == pytest.approx((0.25 * (1 - w), 0.25 + 0.75 * w), abs=0.005)


def test_many_problems_have_the_normal_interval():
    values = [1.0] * 300 + [0.0] * 700
    found = mean_interval(values, resamples=4000, seed=1)
    half_width = 1.96 * math.sqrt(0.3 * 0.7 / 1000)
    assert found.value == pytest.approx(0.3)
    assert ends(found) == pytest.approx((0.3 - half_width, 0.3 + half_width), abs=0.003)


def test_one_problem_has_no_interval():
    for found in (
        mean_interval([0.5], resamples=10, seed=0),
        mean_interval([3.0, 0.0], denominators=[4, 0], resamples=10, seed=0),
        mean_difference([1.0], [0.0, 1.0], resamples=10, seed=0),
    ):
        assert np.isnan(ends(found)).all()
        assert found.to_json()["low"] is None
    assert found.value == 0.5


def test_problems_are_drawn_not_samples():
    """Two problems of 100 samples, all right or all wrong, are 2 cases, not 200."""
    found = mean_interval([100, 0], denominators=[100, 100], resamples=9000, seed=0)
    exact = scipy.stats.binomtest(1, 2).proportion_ci(method="exact")
    assert ends(found) == pytest.approx((exact.low, exact.high), abs=0.01)


def test_a_ratio_weighs_problems_by_their_cases():
    values, cases = np.array([3.0, 0.0, 0.0]), np.array([4.0, 1.0, 0.0])
    found = mean_interval(values, denominators=cases, resamples=2000, seed=0)
    assert found.value == pytest.approx(3 / 5)
    assert 0 < found.low < 0.3
    assert 0.9 < found.high < 1
    # A problem without a case affects only the resampling.
    less = mean_interval(values[:2], denominators=cases[:2], resamples=20_000, seed=0)
    more = mean_interval(values, denominators=cases, resamples=20_000, seed=0)
    assert ends(less) == pytest.approx(ends(more), abs=0.01)


def test_several_means_are_drawn_alike():
    values = np.random.default_rng(0).random((20, 3))
    together = mean_interval(values, resamples=100, seed=0)
    for k in range(3):
        alone = mean_interval(values[:, k], resamples=100, seed=0)
        assert [each[k] for each in together] == pytest.approx([*alone])


def test_an_interval_is_a_function_of_its_seed():
    values = np.arange(30) / 30
    first = mean_interval(values, resamples=100, seed=3)
    assert mean_interval(values, resamples=100, seed=3) == first
    assert mean_interval(values, resamples=100, seed=4) != first


@pytest.mark.parametrize(
    ("values", "per", "says"),
    [
        ([], None, "one of each per problem"),
        ([1.0], [0.0], "one of each per problem"),
        ([1.0, 2.0], [1.0], "one of each per problem"),
        ([0.5, 1.5], None, r"0.5 to 1.5 leave the bounds 0.0..1.0"),
        ([5.0, 1.0], [4.0, 4.0], "leave the bounds"),
        ([-0.1, 1.0], None, "leave the bounds"),
    ],
)
def test_undefined_ratios_and_bounds_overstepped_are_refused(values, per, says):
    with pytest.raises(ValueError, match=says):
        mean_interval(values, denominators=per, resamples=10, seed=0)


def test_paired_problems_that_do_not_differ_may_differ_elsewhere():
    """0 of 100 differ, so up to 3.6 % may in either direction (Clopper and Pearson)."""
    found = mean_interval([0.0] * 100, bounds=(-1, 1), resamples=40_000, seed=0)
    most = 1 - 0.025 ** (1 / 100)
    assert ends(found) == pytest.approx((-most, most), abs=0.001)


def test_unlike_problems_are_drawn_apart():
    """With many problems, half of them right, the standard errors add in squares."""
    side = [0.0, 1.0] * 500
    found = mean_difference(side, [0.0] * 750 + [1.0] * 250, resamples=4000, seed=0)
    error = math.sqrt(0.25 / 1000 + 0.25 * 0.75 / 1000)
    assert found.value == pytest.approx(0.25)
    assert ends(found) == pytest.approx(
        (0.25 - 1.96 * error, 0.25 + 1.96 * error), abs=0.004
    )
    # None right on one side and all right on the other is still not certain.
    sure = mean_difference([1.0] * 5, [0.0] * 5, resamples=1000, seed=0)
    assert 0 < sure.low < 0.7
    assert sure.high == 1.0


def test_students_interval_by_hand():
    # Mean 2, variance 1, t(2, 0.975) = 4.30265.
    found = t_interval([1, 2, 3])
    assert found.value == 2
    assert found.high - 2 == pytest.approx(4.30265 / 3**0.5, abs=1e-5)
    assert 2 - found.low == pytest.approx(found.high - 2)


def test_welchs_interval_by_hand():
    # Equal sizes and variances give 2 (n - 1) = 4 degrees: t(4, 0.975) = 2.77645.
    found = welch_interval([4, 5, 6], [1, 2, 3])
    assert found.value == 3
    assert found.high - 3 == pytest.approx(2.77645 * (2 / 3) ** 0.5, abs=1e-5)
    # Where one side does not vary, only the other side's degrees of freedom count.
    lone = welch_interval([1, 2, 3], [7, 7])
    assert lone.high - lone.value == pytest.approx(4.30265 / 3**0.5, abs=1e-5)


@pytest.mark.parametrize(
    ("interval", "value"),
    [
        (t_interval([1.0]), 1),
        (t_interval([0.1, 0.1, 0.1]), 0.1),
        (t_interval([0.1 + 0.2, 0.3]), 0.3),
        (welch_interval([1, 1], [2, 2]), -1),
        (welch_interval([3.0], [1.0, 2.0]), 1.5),
    ],
)
def test_equal_numbers_without_bounds_have_no_interval(interval, value):
    assert interval.value == pytest.approx(value)
    assert np.isnan(ends(interval)).all()


@pytest.mark.parametrize(
    "interval",
    [
        lambda: t_interval([]),
        lambda: welch_interval([1.0, 2.0], []),
        lambda: mean_difference([1.0], [], resamples=9, seed=0),
    ],
)
def test_no_value_at_all_is_refused(interval):
    with pytest.raises(ValueError, match="give one"):
        interval()


def coverage(rate, problems, *, samples, concentration, trials, change=0.0):
    """Returns how often an interval holds the truth, over simulated evaluations.

    Each problem's rate is drawn from a Beta with that mean and a + b = `concentration`
    (small: problems are all or nothing; None: all are alike). With `change`, the
    interval is for the paired difference to a policy that also solves this fraction of
    the problems.
    """
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(trials):
        own = np.full(problems, rate)
        if concentration is not None:
            own = rng.beta(rate * concentration, (1 - rate) * concentration, problems)
        values = rng.binomial(samples, own) / samples
        truth, bounds = rate, (0.0, 1.0)
        if change:
            later = np.where(rng.random(problems) < change, 1.0, own)
            values = rng.binomial(samples, later) / samples - values
            truth, bounds = change * (1 - rate), (-1.0, 1.0)
        found = mean_interval(values, bounds=bounds, resamples=400, seed=trial)
        held += found.low <= truth <= found.high
    return held / trials


RATES, SIZES = (0.01, 0.05, 0.5, 0.95), (10, 30, 100, 300)


@pytest.mark.parametrize(("rate", "problems"), [(0.01, 10), (0.05, 30), (0.5, 10)])
def test_intervals_hold_the_rate(rate, problems):
    found = coverage(rate, problems, samples=4, concentration=0.5, trials=200)
    assert found >= 0.93


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("problems", SIZES)
def test_intervals_hold_every_rate_at_every_size(rate, problems):
    """With one sample a problem or many, for uniform and all-or-nothing problems."""
    found = {
        (samples, concentration): coverage(
            rate, problems, samples=samples, concentration=concentration, trials=500
        )
        for samples, concentration in itertools.product((1, 8, 64), (None, 2.0, 0.2))
    }
    assert min(found.values()) >= 0.93, found


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("problems", SIZES)
def test_paired_intervals_hold_every_gain_at_every_size(rate, problems):
    found = {
        (samples, change): coverage(
            rate,
            problems,
            samples=samples,
            concentration=1.0,
            trials=500,
            change=change,
        )
        for samples, change in itertools.product((1, 8), (0.02, 0.3))
    }
    assert min(found.values()) >= 0.93, found


def test_intervals_over_prompts_and_over_problems_are_of_one_type():
    prompts = bootstrap_interval(np.ravel, np.arange(6.0).reshape(3, 2))
    ratio = cohens_d_interval(
        OutcomeMoments(
            num_rollouts=np.full((4, 2), 3),
            sums=np.random.default_rng(0).random((4, 2, 5)),
            squares=np.ones((4, 2, 5)),
        ),
        num_resamples=20,
    )
    problems = mean_interval([0.0, 1.0], resamples=20, seed=0)
    assert {type(each) for each in (prompts, ratio, problems)} == {Interval}


def test_an_unknown_end_is_null():
    told = {"mean": 1.0, "low": None, "high": 2.0}
    assert Interval(1, np.nan, 2).to_json() == told
    assert Interval.from_json(told).to_json() == told
