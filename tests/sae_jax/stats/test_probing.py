"""Correlation, AUROC and probes, compared with SciPy and with values by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sae_jax.stats.probing import (
    assign_latents,
    auroc,
    correlation_sums,
    fit_probe,
    top_difference_latents,
)

RNG = np.random.default_rng(0)


def test_correlation_is_pearsons_and_merges():
    f = RNG.normal(size=(60, 3)).astype(np.float32) + 5
    truths = RNG.random((60, 2)) < 0.3
    all_ = np.ones(60, bool)
    parts = [
        correlation_sums(f[part], truths[part], all_[part]).to_host()
        for part in (slice(0, 17), slice(17, 60))
    ]
    found = (parts[0] + parts[1]).correlation()
    expected = np.corrcoef(np.hstack([f, truths]).T)[:3, 3:]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_tokens_that_are_not_counted_do_not_enter_and_constants_correlate_with_none():
    f = np.array([[1.0, 7.0], [2.0, 7.0], [np.nan, np.inf]], np.float32)
    truths = np.array([[False], [True], [True]])
    sums = correlation_sums(f, truths, np.array([True, True, False]))
    np.testing.assert_allclose(sums.correlation(), [[1.0], [0.0]], atol=1e-6)


def test_each_truth_gets_a_separate_latent():
    """Greedy matching would give latent 0 to truth 0 (.9) and leave .1 for truth 1."""
    correlation = np.array([[0.9, -0.8], [0.7, 0.1], [0.0, 0.0]])
    found = assign_latents(correlation)
    np.testing.assert_array_equal(found.latents, [1, 0])
    assert found.mean_correlation == pytest.approx((0.7 + 0.8) / 2)


def test_fewer_latents_than_truths_are_refused():
    with pytest.raises(ValueError, match="1 latents are too few for 2 labels"):
        assign_latents(np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("scores", "truth", "expected"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 1.0),
        ([1, 2, 3, 4], [1, 1, 0, 0], 0.0),
        ([0, 0, 0, 0], [0, 1, 0, 1], 0.5),
        ([0, 0, 0, 5], [0, 1, 0, 1], 0.75),  # 5 beats both, 0 ties with both
    ],
)
def test_auroc_by_hand(scores, truth, expected):
    assert auroc(np.array(scores), np.array(truth, bool)) == expected


def test_auroc_is_mann_whitneys_u():
    scores = RNG.integers(0, 5, 200)
    truth = RNG.random(200) < 0.4
    u = scipy.stats.mannwhitneyu(scores[truth], scores[~truth]).statistic
    expected = u / (truth.sum() * (~truth).sum())
    assert auroc(scores, truth) == pytest.approx(expected)


def test_auroc_of_a_constant_truth_is_nan():
    assert np.isnan(auroc(np.arange(3), np.ones(3, bool)))


def test_a_probe_without_penalty_gives_back_the_frequencies():
    """With one indicator, the odds within each of its values equal the data's.

    f = 0: 3 of 4 are label 1, f = 1: 1 of 4; so the logit falls from log 3 to -log 3.
    """
    f = np.repeat([[0.0], [1.0]], 4, axis=0)
    labels = np.array([1, 1, 1, 0, 1, 0, 0, 0])
    probe = fit_probe(f, labels, classes=2, penalty=0.0)
    logits = np.array([[0.0], [1.0]]) @ probe.weights + probe.bias
    np.testing.assert_allclose(
        logits[:, 1] - logits[:, 0], [np.log(3), -np.log(3)], atol=2e-3
    )


def test_the_gradient_vanishes_at_the_probe():
    """At the optimum, sum f (p - y) + penalty w = 0 and sum (p - y) = 0."""
    f = RNG.normal(size=(80, 3)).astype(np.float32)
    labels = RNG.integers(0, 3, 80)
    probe = fit_probe(f, labels, classes=3, penalty=2.0)
    p = scipy.special.softmax(f @ probe.weights + probe.bias, axis=1)
    residual = p - np.eye(3)[labels]
    gradient = f.T @ residual + 2.0 * probe.weights
    np.testing.assert_allclose(gradient / 80, 0, atol=2e-4)
    np.testing.assert_allclose(residual.sum(axis=0) / 80, 0, atol=2e-4)


def test_a_probe_reads_separable_labels():
    f = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2]]
    labels = np.array([2, 0, 1, 2, 0, 1])
    assert fit_probe(f, labels, classes=3).accuracy(f, labels) == 1.0


def test_the_most_informative_latents_differ_most():
    """Latent 3 is 2 higher where truth 0 holds; latent 1 is 1 higher for truth 1."""
    f = np.zeros((4, 5), np.float32)
    f[:2, 3] = 2.0
    f[2:, 1] = 1.0
    f[:, 0] = 9.0
    truths = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]], bool)
    sums = correlation_sums(f, truths, np.ones(4, bool))
    np.testing.assert_allclose(sums.mean_difference()[3], [2, -2, 0])
    np.testing.assert_array_equal(top_difference_latents(sums, per_label=1), [1, 3])


def test_device_arrays_are_accepted():
    f = jax.random.normal(jax.random.key(0), (8, 2))
    sums = correlation_sums(f, f > 0, jnp.ones(8, bool))
    assert (np.diag(sums.correlation()) > 0.5).all()
