"""Where two pass@k curves cross: by hand, and how often the interval is right."""

import itertools
import math

import numpy as np
import pytest

from rlvr_jax.metrics.crossing import Crossing, find_crossing, summarize_gain

OPTIONS = {"resamples": 400, "seed": 0}


def counts(*correct, n):
    return {str(i): (n, c) for i, c in enumerate(correct)}


def sharpened(problems, n, rng, *, solved=0.5, base=0.05):
    """Returns evaluations after RL, and of a base that solves at rate `base`.

    RL always solves a fraction `solved` of the problems and never the others. With
    replacement the curves would cross where 1 - (1 - base)^k = solved.
    """
    before = rng.binomial(n, base, problems)
    after = np.where(rng.random(problems) < solved, n, 0)
    return counts(*after.tolist(), n=n), counts(*before.tolist(), n=n)


def test_curves_cross_where_the_estimator_says():
    """RL solves one of two problems; the base solves each with 2 of 8 samples.

    The base's pass@k is 1 - C(6, k) / C(8, k): 1/4, 13/28, 9/14 for k = 1, 2, 3.
    """
    base = [1 - math.comb(6, k) / math.comb(8, k) for k in (1, 2, 3)]
    assert base == pytest.approx([1 / 4, 13 / 28, 9 / 14])
    found = find_crossing(counts(8, 0, n=8), counts(2, 2, n=8), **OPTIONS)
    assert (found.leads, found.k, found.max_k) == (True, 3, 8)
    # Resamples with only the solved problem never cross: both curves are 1 from k = 7
    # on, so the lead ends there. With only the other problem, RL never leads.
    assert (found.low, found.high) == (1, 7)
    swapped = find_crossing(counts(2, 2, n=8), counts(8, 0, n=8), **OPTIONS)
    assert swapped == found._replace(leads=False)


def test_a_lead_that_lasts_is_beyond_the_samples():
    found = find_crossing(counts(4, 4, 4, n=4), counts(0, 0, 0, n=4), **OPTIONS)
    assert found == Crossing(True, math.inf, math.inf, math.inf, 4)
    assert found.to_json() == {
        "leads": True,
        "k": None,
        "low": None,
        "high": None,
        "max_k": 4,
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (counts(1, 2, n=4), counts(1, 2, n=4)),  # the same
        (counts(1, 3, n=4), counts(3, 1, n=4)),  # equal at k = 1
        (counts(4, n=4), counts(1, n=4)),  # one problem
    ],
)
def test_no_leader_or_one_problem_has_no_crossing(ours, theirs):
    assert find_crossing(ours, theirs, **OPTIONS) is None


def test_unlike_problems_are_drawn_apart():
    """The same means on other problems give the same point and another interval."""
    ours, theirs = sharpened(40, 16, np.random.default_rng(0), base=0.15)
    paired = find_crossing(ours, theirs, **OPTIONS)
    renamed = {f"x{name}": each for name, each in theirs.items()}
    apart = find_crossing(ours, renamed, **OPTIONS)
    assert (apart.leads, apart.k) == (paired.leads, paired.k)
    assert apart[2:] != paired[2:]


def test_problems_are_paired_by_name_in_any_order():
    ours, theirs = sharpened(40, 16, np.random.default_rng(0), base=0.15)
    turned = dict(reversed(theirs.items()))
    expected = find_crossing(ours, theirs, **OPTIONS)
    assert find_crossing(ours, turned, **OPTIONS) == expected
    gains = [
        summarize_gain(before, ours, k=(1, 4), **OPTIONS) for before in (theirs, turned)
    ]
    assert gains[0] == gains[1]


def test_pass_at_256_crosses_where_the_rates_say():
    """1 - 0.99^k reaches one half at k = 69; 256 samples of 400 problems find it."""
    expected = math.log(0.5) / math.log(0.99)
    assert expected == pytest.approx(68.97, abs=0.01)
    ours, theirs = sharpened(400, 256, np.random.default_rng(1), base=0.01)
    found = find_crossing(ours, theirs, **OPTIONS)
    assert found.max_k == 256
    assert found.low <= expected <= found.high
    assert found.k == pytest.approx(expected, rel=0.25)


def test_the_gain_is_paired_by_problem_and_has_the_crossing():
    """RL always solves one of two problems; the base solves each in 1 of 4 samples."""
    before, after = counts(1, 1, n=4), counts(4, 0, n=4)
    gain = summarize_gain(before, after, k=(1, 2, 4), **OPTIONS)
    means = {k: each["mean"] for k, each in gain["pass@k"].items()}
    assert means == pytest.approx({"1": 0.25, "2": 0, "4": -0.5})
    for each in gain["pass@k"].values():
        assert -1 <= each["low"] < each["mean"] < each["high"] <= 1
    assert gain["crossing"] == {"leads": True, "k": 2, "low": 1, "high": 4, "max_k": 4}


def test_one_problem_gains_without_an_interval():
    gain = summarize_gain(counts(0, n=2), counts(2, n=2), k=(1,), **OPTIONS)
    assert gain == {
        "pass@k": {"1": {"mean": 1.0, "low": None, "high": None}},
        "crossing": None,
    }


def test_a_policy_that_did_not_change_gained_nothing_certain():
    """0 of 30 problems differ, yet 1 - 0.025^(1/30) = 11.6 % of unseen ones may."""
    same = counts(*[1] * 30, n=2)
    gain = summarize_gain(same, same, k=(1,), resamples=4000, seed=0)
    one = gain["pass@k"]["1"]
    assert (one["low"], one["high"]) == pytest.approx((-0.116, 0.116), abs=0.01)


@pytest.mark.parametrize("problems", [30, 100])
def test_intervals_hold_every_crossing(problems):
    for solved, base in itertools.product((0.3, 0.5), (0.05, 0.1)):
        truth = math.ceil(math.log(1 - solved) / math.log(1 - base))
        rng = np.random.default_rng(0)
        found = [
            find_crossing(
                *sharpened(problems, 64, rng, solved=solved, base=base), **OPTIONS
            )
            for _ in range(100)
        ]
        # With 30 problems RL may happen to solve none: then it has no lead to claim.
        held = np.mean([each.low <= truth <= each.high for each in found if each])
        assert held >= 0.9, (solved, base, held)
