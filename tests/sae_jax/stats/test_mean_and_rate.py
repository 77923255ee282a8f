"""A feature has one test of its mean and one of its rate; each decides its claims.

`strengthened` and `suppressed` are claims about the mean, `emerging` about the rate.
Here the two p-values disagree, so the wrong one gives the wrong claim.
"""

import dataclasses

import numpy as np
import pytest

from sae_jax.stats.dynamics import (
    CHANGE_KINDS,
    ChangeEstimate,
    PairedSums,
    Thresholds,
    estimate_changes,
    find_changes,
)
from sae_jax.stats.noise_null import NoiseNull

CUTS = Thresholds()
SURE, CHANCE = 1e-9, 0.5
# A feature that passes the thresholds of two kinds at once. It fires on 40 of 50,000
# tokens before, which is enough for a ratio and below e0, and on 1,000 afterwards.
TOKENS = 50_000.0
FIRED = np.array([[40.0], [1000.0]])


def change(*, p_mean, p_rate, means=(1.0, 3.0), fired=FIRED):
    """Returns the change of one feature whose two tests disagree."""
    return ChangeEstimate(
        num_tokens=TOKENS,
        num_prompts=24,
        mean=np.array(means)[:, None],
        rate=fired / TOKENS,
        fired=fired,
        prompts=np.array([20]),
        p_mean=np.array([p_mean]),
        p_rate=np.array([p_rate]),
    )


@pytest.mark.parametrize(
    ("p_mean", "p_rate", "claimed"),
    [
        (SURE, SURE, {"strengthened", "emerging"}),
        (CHANCE, SURE, {"emerging"}),
        (SURE, CHANCE, {"strengthened"}),
        (CHANCE, CHANCE, set()),
    ],
)
def test_each_kind_is_claimed_by_its_own_test(p_mean, p_rate, claimed):
    found = find_changes(change(p_mean=p_mean, p_rate=p_rate), CUTS)
    assert {kind for kind in CHANGE_KINDS if found.counts[kind]} == claimed
    assert (found.q_mean[0], found.q_rate[0]) == (p_mean, p_rate)


@pytest.mark.parametrize(("p_mean", "lost"), [(SURE, 1), (CHANCE, 0)])
def test_suppressed_features_are_claimed_by_the_mean(p_mean, lost):
    """The rate does not change, and its p-value does not matter."""
    steady = np.array([[1000.0], [1000.0]])
    for p_rate in (SURE, CHANCE):
        less = change(p_mean=p_mean, p_rate=p_rate, means=(3.0, 1.0), fired=steady)
        assert find_changes(less, CUTS).counts["suppressed"] == lost


def test_the_mean_is_tested_by_sums_and_the_rate_by_firings():
    """In every prompt feature 0 fires more often, and feature 1 more strongly.

    The other number goes up in half of the prompts and down in the other half.
    """
    P = 24
    sign_P = np.where(np.arange(P) % 2, 1.0, -1.0)
    texts = PairedSums(
        tokens=np.full(P, 200.0),
        sum=np.full((P, 2), 30.0),
        sum_change=np.stack([3 * sign_P, np.full(P, 15.0)], axis=1),
        fired=np.full((P, 2), 20.0),
        fired_change=np.stack([np.full(P, 12.0), 2 * sign_P], axis=1),
    )
    found = estimate_changes(texts)
    assert found.p_rate[0] == found.p_mean[1] == pytest.approx(2.0 ** (1 - P))
    assert min(found.p_mean[0], found.p_rate[1]) > 0.9


N, Z, AT = 20, 40, 7  # draws of noise, features, and the feature of interest


def moved(seed, *, mean=0.0, rate=0.0):
    """Returns a change that moves feature AT by a given amount, the others by chance.

    Its rate is below e0 before, so it may emerge; every test is passed.
    """
    rng = np.random.default_rng(seed)
    fired = np.full((2, Z), 5000.0)
    means = np.ones((2, Z))
    means[1] += 0.3 * rng.standard_normal(Z)
    fired[1] *= 1 + 0.1 * rng.standard_normal(Z)
    fired[:, AT] = 40.0, 1000.0 + TOKENS * rate + 20 * rng.standard_normal()
    means[:, AT] = 1.0, 3.0 + mean + 0.02 * rng.standard_normal()
    every = change(p_mean=SURE, p_rate=SURE)
    return dataclasses.replace(
        every,
        mean=means,
        rate=fired / TOKENS,
        fired=fired,
        prompts=np.full(Z, 20),
        p_mean=np.full(Z, SURE),
        p_rate=np.full(Z, SURE),
    )


@pytest.mark.parametrize(
    ("moves", "claimed"),
    [
        ({"mean": 9.0}, {"strengthened"}),
        ({"rate": 0.1}, {"emerging"}),
        ({"mean": 9.0, "rate": 0.1}, {"strengthened", "emerging"}),
        ({}, set()),
    ],
)
def test_noise_explains_a_mean_by_means_and_a_rate_by_rates(moves, claimed):
    """Every draw of noise moves feature AT past all thresholds, as RL does.

    If RL moves only the mean farther than noise does, only the mean is claimed, and
    likewise for the rate.
    """
    null = NoiseNull.from_draws([moved(seed) for seed in range(N)], CUTS)
    found = null.compare(moved(99, **moves))
    assert {kind for kind in CHANGE_KINDS if vars(found)[kind][AT]} == claimed
    assert not np.delete(found.changed, AT).any()
