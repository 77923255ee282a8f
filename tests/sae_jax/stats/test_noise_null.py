"""The noise null: only a change that noise does not make is a claim."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from sae_jax.stats.dynamics import (
    PairedSums,
    Thresholds,
    estimate_changes,
    find_changes,
)
from sae_jax.stats.noise_null import NoiseNull

P, Z, N = 24, 60, 20
CUTS = Thresholds()
BASE = np.random.default_rng(0).gamma(4.0, 5.0, size=(P, Z))


def texts(factor_Z, *, fired_change=0.0, seed=0):
    """Returns sums that grew by a factor each, nearly the same in every prompt."""
    jitter = 0.02 * np.random.default_rng(seed).standard_normal((P, Z))
    return PairedSums(
        tokens=np.full(P, 100.0),
        sum=BASE,
        sum_change=BASE * (np.maximum(factor_Z * (1 + jitter), 0.0) - 1),
        fired=np.full((P, Z), 20.0),
        fired_change=np.full((P, Z), fired_change),
    )


def drifted(seed, *, spread=0.3):
    """Returns a weight change that learned nothing: each feature moves by chance.

    Moves follow Student's t with 4 degrees of freedom, so some move far.
    """
    rng = np.random.default_rng((1, seed))
    factor_Z = 0.9 + spread * rng.standard_t(4, size=Z) / np.sqrt(2)
    return estimate_changes(texts(np.maximum(factor_Z, 0.0), seed=seed))


@pytest.fixture(scope="module")
def null():
    return NoiseNull.from_draws([drifted(i) for i in range(N)], CUTS)


def test_noise_moves_most_features_and_claims_almost_none():
    """Sign flips find 35 of 60 features changed in every draw; the null hardly one.

    100 draws are compared with nulls of 20 others: a false claim in 5 of 100, +- 2.2.
    """
    moved, claimed = [], []
    for group in range(10):
        draws = [drifted(1000 * group + i) for i in range(N + 10)]
        null = NoiseNull.from_draws(draws[:N], CUTS)
        moved += [find_changes(draw, CUTS).changed.sum() for draw in draws[N:]]
        claimed += [null.compare(draw).changed.sum() for draw in draws[N:]]
    assert np.mean(moved) > 25
    assert np.count_nonzero(claimed) <= 10


def test_what_one_change_alone_does_is_found_among_noise(null):
    """Noise moves a feature by about 0.3 of its mean; six times that is not noise."""
    rng = np.random.default_rng(9)
    factor_Z = 0.9 + 0.1 * rng.standard_normal(Z)
    factor_Z[[3, 17, 40]] = 6.0
    found = null.compare(estimate_changes(texts(factor_Z)))
    assert np.flatnonzero(found.changed).tolist() == [3, 17, 40]
    assert found.strengthened.sum() == 3


def test_scores_are_students_prediction_interval(null):
    """SciPy's t compares the new move with the draws, as one more value."""
    new = estimate_changes(texts(np.full(Z, 1.5)))
    move_Z = new.mean[1] - new.mean[0]
    t_Z = (move_Z - null.mean.mean(axis=0)) / np.sqrt(
        null.mean.var(axis=0, ddof=1) * (1 + 1 / N)
    )
    p_Z = 2 * scipy.stats.t.sf(np.abs(t_Z), N - 1)
    as_extreme_Z = (null.mean_scores[None] <= p_Z[:, None]).sum(axis=1)
    expected_Z = scipy.stats.false_discovery_control(
        (1 + as_extreme_Z) / (1 + N * Z), method="bh"
    )
    np.testing.assert_allclose(null.compare(new).q_mean, expected_Z, rtol=1e-9)


def test_one_feature_beyond_all_draws_has_q_just_below_a_twentieth(null):
    factor_Z = np.ones(Z)
    factor_Z[5] = 40.0
    found = null.compare(estimate_changes(texts(factor_Z)))
    assert found.q_mean[5] == pytest.approx(Z / (1 + N * Z))
    assert found.q_mean[5] < 0.05
    assert found.counts["strengthened"] == 1


def test_a_move_smaller_than_noise_is_not_a_finding():
    """Noise halves feature 0, +- 2 %; learning reduces it by only a fourth."""
    rng = np.random.default_rng(2)
    draws = []
    for i in range(N):
        factor_Z = np.ones(Z)
        factor_Z[0] = 0.5 + 0.02 * rng.standard_normal()
        draws.append(estimate_changes(texts(factor_Z, seed=i)))
    null = NoiseNull.from_draws(draws, CUTS)
    factor_Z = np.ones(Z)
    factor_Z[0] = 0.75
    less = estimate_changes(texts(factor_Z))
    assert find_changes(less, CUTS).suppressed[0]
    assert not null.compare(less).changed.any()
    factor_Z[0] = 0.2
    assert null.compare(estimate_changes(texts(factor_Z))).suppressed[0]


def waking(rate, seed):
    """Returns a change in which the silent feature 7 starts to fire at a rate."""
    part = texts(np.ones(Z), seed=seed)
    for array in (part.sum, part.sum_change, part.fired):
        array[:, 7] = 0.0
    part.sum_change[:, 7] = part.fired_change[:, 7] = 100 * rate
    return estimate_changes(dataclasses.replace(part))


def test_a_feature_that_noise_never_wakes_emerges(monkeypatch):
    monkeypatch.setattr(f"{__name__}.BASE", BASE.copy())
    asleep = NoiseNull.from_draws([waking(0.0, i) for i in range(N)], CUTS)
    assert (
        asleep.compare(waking(0.1, 99)).emerging.tolist()
        == (np.arange(Z) == 7).tolist()
    )
    restless = NoiseNull.from_draws([waking(0.1 * (i % 2), i) for i in range(N)], CUTS)
    assert find_changes(waking(0.1, 99), CUTS).emerging[7]
    assert not restless.compare(waking(0.1, 99)).emerging.any()


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="19 draws of noise: with fewer than 20"):
        NoiseNull.from_draws([drifted(i) for i in range(19)], CUTS)
