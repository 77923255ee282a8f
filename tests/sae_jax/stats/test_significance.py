"""P-values of sign flips against all signs, and Benjamini-Hochberg's rule."""

import itertools

import numpy as np
import pytest

from sae_jax.stats.significance import benjamini_hochberg, sign_flip_p_values


def by_all_signs(differences_PZ):
    """Returns exact two-sided p-values over all 2^P signs."""
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=len(differences_PZ))))
    sums = np.abs(signs @ differences_PZ)
    return (sums >= np.abs(differences_PZ.sum(axis=0)) - 1e-9).mean(axis=0)


def differences(kind, *, prompts=12, features=200):
    rng = np.random.default_rng(0)
    shape = (prompts, features)
    lean = rng.random(features)
    mostly_up = np.sign(rng.random(shape) - 0.2)
    return {
        "normal": rng.normal(size=shape) + lean,
        "heavy": rng.standard_t(2, size=shape) + 2 * lean,
        "skewed": rng.exponential(size=shape) * mostly_up,
        "counts": rng.poisson(2.0, size=shape) * mostly_up,
        "fives": 5.0 * rng.poisson(0.7, size=shape) * mostly_up,
    }[kind]


@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed", "counts", "fives"])
def test_the_tail_agrees_with_all_signs(kind):
    d_PZ = differences(kind)
    exact = by_all_signs(d_PZ)
    found = sign_flip_p_values(d_PZ, integer=kind in ("counts", "fives"))
    small = exact < 0.1
    assert small.sum() > 20
    ratio = found[small] / exact[small]
    assert 0.97 < np.median(ratio) < 1.1
    assert ratio.min() > 0.5
    assert ratio.max() < 1.8


def test_signs_all_alike_have_the_chance_of_that():
    """Ten differences of one sign: 2 of 2^10 signs are as extreme, for any sizes."""
    d_PZ = np.stack([np.full(10, 3.0), -np.arange(1.0, 11)], axis=1)
    np.testing.assert_allclose(sign_flip_p_values(d_PZ), 2**-9)
    np.testing.assert_allclose(sign_flip_p_values(d_PZ, integer=True), 2**-9)
    padded_PZ = np.concatenate([d_PZ, np.zeros((30, 2))])
    np.testing.assert_allclose(sign_flip_p_values(padded_PZ), 2**-9)


def test_no_difference_is_no_evidence():
    balanced = np.array([[1.0, 0.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(sign_flip_p_values(balanced), [1.0, 1.0])
    assert sign_flip_p_values(np.zeros((3, 0))).shape == (0,)


def test_a_far_tail_has_no_floor():
    """100 equal steps, 90 up: P(|S| >= 80) = 2 P(Binomial(100, 1/2) >= 90)."""
    d_PZ = np.where(np.arange(100) < 90, 1.0, -1.0)[:, None]
    expected = 3.0632e-17
    assert sign_flip_p_values(d_PZ, integer=True)[0] == pytest.approx(
        expected, rel=0.05
    )


def test_scale_and_direction_do_not_matter():
    d_PZ = differences("normal")
    p_Z = sign_flip_p_values(d_PZ)
    np.testing.assert_allclose(sign_flip_p_values(-1e-7 * d_PZ), p_Z, rtol=1e-6)


def test_adjusted_p_values_by_hand():
    """M = 4: 0.01 x 4/1, 0.02 x 4/2, then 0.9 caps 0.8 x 4/3, and stays 0.9."""
    found = benjamini_hochberg(np.array([0.9, 0.02, 0.8, 0.01]))
    np.testing.assert_allclose(found, [0.9, 0.04, 0.9, 0.04])


def test_adjusted_p_values_keep_their_order():
    p = np.random.default_rng(0).random(50) ** 3
    q = benjamini_hochberg(p)
    assert (np.diff(q[np.argsort(p)]) >= 0).all()
    assert (q >= p).all()
    for level in (0.05, 0.2, 0.5):  # the step-up rule itself
        below = np.sort(p) <= level * np.arange(1, 51) / 50
        rejected = below.nonzero()[0].max() + 1 if below.any() else 0
        assert (q <= level).sum() == rejected
