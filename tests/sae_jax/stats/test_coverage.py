"""A 95 % interval misses the truth in about 2.5 % of simulated worlds on each side.

Each column is a world with its own noise and the same truth, so one call makes hundreds
of intervals. The bounds leave room for chance, and for the percentile bootstrap, which
is slightly too narrow with few prompts. A 50 % interval would miss 25 % of the worlds
on each side, a 99.9 % interval almost none.
"""

import numpy as np
import pytest

from sae_jax.capture import splice
from sae_jax.stats.crosscoder import CrosscoderSums, measure_changes
from sae_jax.stats.dynamics import PairedSums, change_intervals
from sae_jax.stats.features import OutcomeMoments, cohens_d_interval
from sae_jax.stats.resample import bootstrap_interval

P, WORLDS = 40, 1000


def misses(interval, truth):
    """Returns the shares of worlds whose interval is below and above the truth."""
    low, value, high = (
        np.asarray(end) for end in (interval.low, interval.value, interval.high)
    )
    assert ((low <= value) & (value <= high)).all()
    return np.mean(high < truth), np.mean(low > truth)


def is_near(found, expected=0.025):
    """Returns whether both shares are near the expected one."""
    return all(expected / 2.5 <= share <= expected * 2 for share in found)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
def test_a_bootstrap_over_prompts_covers_as_often_as_it_says(confidence):
    values_PZ = np.random.default_rng(0).normal(3.0, 1.0, size=(P, WORLDS))
    found = bootstrap_interval(
        lambda sums: sums / P, values_PZ, num_resamples=400, confidence=confidence
    )
    below, above = misses(found, 3.0)
    expected = (1 - confidence) / 2
    for share in (below, above):
        assert 0.75 * expected <= share <= 1.25 * expected + 0.01


def test_95_percent_is_the_default():
    values_PZ = np.random.default_rng(1).normal(3.0, 1.0, size=(P, WORLDS))
    default, asked = (
        bootstrap_interval(lambda sums: sums / P, values_PZ, num_resamples=50, **how)
        for how in ({}, {"confidence": 0.95})
    )
    np.testing.assert_array_equal(default, asked)


@pytest.mark.parametrize(("first", "last"), [(1.0, 1.0), (0.5, 1.5)])
def test_the_scaling_share_of_a_crosscoder_is_covered(first, last):
    """Each problem measures how strongly a checkpoint has a latent, with noise.

    The decoder rows are equal in both checkpoints.
    """
    rng = np.random.default_rng(2)
    decoder_ZKD = np.zeros((WORLDS, 2, 3))
    decoder_ZKD[:, :, 0] = 1.0
    square_PZ = rng.gamma(4.0, 0.25, size=(P, WORLDS))
    beta_K = np.array([first, last])
    noise_PKZ = rng.normal(0.0, 0.4, size=(P, 2, WORLDS))
    sums = CrosscoderSums(
        problems=np.arange(P),
        tokens=np.full(P, 9),
        fired=np.full((P, WORLDS), 3),
        square=square_PZ,
        along=square_PZ[:, None] * (beta_K[None, :, None] - 1.0 + noise_PKZ),
        error=np.ones(2),
        scatter=np.full(2, 2.0),
    )
    share = measure_changes(sums, decoder_ZKD).scaling_share
    assert np.mean(share.value) == pytest.approx(last / (first + last), abs=0.01)
    assert is_near(misses(share, last / (first + last)))


def test_firing_rates_and_ratios_are_covered():
    """Prompts differ in their rates, and in how far a feature grew."""
    rng = np.random.default_rng(3)
    tokens_P = np.full(P, 200.0)
    rate_PZ = rng.beta(2.0, 18.0, size=(P, WORLDS))
    fired_PZ = rng.binomial(200, rate_PZ).astype(float)
    before_PZ = 10 + rng.gamma(4.0, 5.0, size=(P, WORLDS))
    texts = PairedSums(
        tokens=tokens_P,
        sum=before_PZ,
        sum_change=before_PZ * rng.normal(0.5, 0.3, size=(P, WORLDS)),
        fired=np.zeros((P, WORLDS)),
        fired_change=fired_PZ,
    )
    found = change_intervals(texts, np.arange(WORLDS), num_resamples=400)
    assert is_near(misses(found.rate, 0.1))
    assert is_near(misses(found.ratio, 1.5))


def test_an_effect_size_is_covered():
    """Half a standard deviation between correct and incorrect rollouts."""
    rng = np.random.default_rng(4)
    means_P2GZ = rng.normal(size=(P, 2, 4, WORLDS))
    means_P2GZ[:, 1] += 0.5
    moments = OutcomeMoments(
        num_rollouts=np.full((P, 2), 4.0),
        sums=means_P2GZ.sum(axis=2),
        squares=(means_P2GZ**2).sum(axis=2),
    )
    assert is_near(misses(cohens_d_interval(moments, num_resamples=300), 0.5))


def test_the_costs_of_a_splice_have_95_percent_intervals():
    """With 400 problems each end is 1.96 standard errors away."""
    rng = np.random.default_rng(5)
    sums_P7 = np.abs(rng.normal(50.0, 10.0, size=(400, 7)))
    sums_P7[:, 0] = 20.0  # tokens
    report = splice._report(sums_P7)
    figures = [*report["cross_entropy"].values(), *report["kl"].values()]
    spread_5 = sums_P7[:, [1, 2, 3, 5, 6]].std(axis=0) / 20.0
    for figure, spread in zip(figures, spread_5, strict=True):
        width = figure["high"] - figure["low"]
        assert width == pytest.approx(2 * 1.96 * spread / 20.0, rel=0.12)
        assert figure["low"] < figure["mean"] < figure["high"]
