"""Figures of dictionaries that are small enough to work out by hand."""

import dataclasses
import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from sae_jax.io import load
from sae_jax.sae import TSAE
from sae_jax.stats.quality import (
    match_decoders,
    measure_quality,
    quality_report,
    seed_cosine,
)

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "sae_files"


def identity(width: int = 2, high: int = 1) -> TSAE:
    """Returns f = relu(x) above 1/2, a copy of x where positive."""
    return TSAE(
        encoder=jnp.eye(width),
        encoder_bias=jnp.zeros(width),
        decoder=jnp.eye(width),
        decoder_bias=jnp.zeros(width),
        threshold=jnp.full(width, 0.5),
        group_sizes=(high, width - high),
    )


def silent(mean) -> TSAE:
    """Returns a dictionary that never fires; it reconstructs its decoder's bias."""
    width = len(mean)
    return TSAE(
        encoder=jnp.zeros((width, 3)),
        encoder_bias=jnp.zeros(3),
        decoder=jnp.ones((3, width)),
        decoder_bias=jnp.asarray(mean, jnp.float32),
        threshold=jnp.zeros(3),
        group_sizes=(3,),
    )


def all_of(x):
    return jnp.ones(x.shape[:2], bool)


def test_predicting_the_mean_explains_exactly_nothing():
    x = jax.random.normal(jax.random.key(0), (4, 16, 5)) + 3.0
    tsae = silent(x.sum((0, 1)) / jnp.float32(64))
    figures = quality_report(measure_quality(tsae, x, all_of(x)), num_high=3)
    assert figures["fve"] == 0.0
    assert figures["l0"]["all"] == figures["alive"]["all"] == 0.0
    assert figures["density"]["never"] == 3
    assert "all" not in figures["smoothness"]


def test_an_exact_copy_explains_everything():
    x = jnp.array([[[1.0, 2.0], [3.0, 1.0], [2.0, 4.0]]])
    figures = quality_report(measure_quality(identity(), x, all_of(x)), num_high=1)
    assert figures["fve"] == 1.0
    assert figures["cosine"] == pytest.approx(1.0, abs=1e-6)


def test_figures_by_hand():
    """With x = (2,0), (4,3), (0,3): all are copied; high keeps the first coordinate.

    mean (2, 2); scatter 0+4 + 4+1 + 4+1 = 14; the high part misses 3^2 + 3^2 = 18.
    Firing: latent 0 twice, latent 1 twice of 3 tokens. Steps of x: |(2,3)| = sqrt 13,
    |(-4,0)| = 4. Latent 0 moves 2 and 4: steepest slope 1; latent 1 moves 3 and 0:
    3/sqrt 13. Variation: (2 + 4) and (3 + 0) over 2 pairs; activity 6 and 6.
    """
    x = jnp.array([[[2.0, 0.0], [4.0, 3.0], [0.0, 3.0]]])
    figures = quality_report(measure_quality(identity(), x, all_of(x)), num_high=1)
    assert figures["tokens"] == 3
    assert figures["fve"] == 1.0
    assert figures["fve_high"] == pytest.approx(1 - 18 / 14)
    assert figures["l0"] == pytest.approx({"high": 2 / 3, "low": 2 / 3, "all": 4 / 3})
    assert figures["alive"] == {"high": 1.0, "low": 1.0, "all": 1.0}
    slope = 3 / 13**0.5
    assert figures["smoothness"] == pytest.approx(
        {"high": 1.0, "low": slope, "all": (1 + slope) / 2}
    )
    assert figures["variation"] == pytest.approx({"high": 3, "low": 1.5, "all": 4.5})
    assert figures["relative_variation"] == pytest.approx(
        {"high": 3 / 2, "low": 1.5 / 2, "all": 4.5 / 4}
    )


def test_relative_smoothness_and_autocorrelation_by_hand():
    """The world of `test_figures_by_hand`: peaks 4 and 3, steps sqrt 13 and 4.

    Slopes 1 and 3 / sqrt 13, times the mean step over the peak. Latent 0 goes 2, 4, 0:
    (2, 4) and (4, 0) are two points on a falling line. Latent 1 goes 0, 3, 3: its
    second values do not vary.
    """
    x = jnp.array([[[2.0, 0.0], [4.0, 3.0], [0.0, 3.0]]])
    figures = quality_report(measure_quality(identity(), x, all_of(x)), num_high=1)
    step = (13**0.5 + 4) / 2
    high, low = step / 4, 3 / 13**0.5 * step / 3
    assert figures["relative_smoothness"] == pytest.approx(
        {"high": high, "low": low, "all": (high + low) / 2}
    )
    assert figures["autocorrelation"] == pytest.approx({"high": -1.0, "all": -1.0})


def test_relative_smoothness_and_autocorrelation_do_not_depend_on_the_size_of_f():
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(6, 40, 3)), axis=1).astype(np.float32) + 3
    x[:, ::4] = -1.0

    def figures(size):
        tsae = dataclasses.replace(
            identity(3, 1), encoder=size * jnp.eye(3), threshold=jnp.zeros(3)
        )
        return quality_report(measure_quality(tsae, x, all_of(x)), num_high=1)

    one, ten = figures(1.0), figures(10.0)
    assert ten["smoothness"]["all"] == pytest.approx(10 * one["smoothness"]["all"])
    for name in ("relative_smoothness", "autocorrelation"):
        assert ten[name] == pytest.approx(one[name], rel=1e-5)


def test_autocorrelation_equals_numpys_over_pairs_within_the_mask():
    """Sums over two batches; a pair across a gap of the mask does not count."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(8, 30, 4)) + 0.8 * rng.normal(size=(8, 1, 4))
    x = x.astype(np.float32)
    mask = rng.random((8, 30)) < 0.8
    first, second = (
        measure_quality(identity(4), x[rows], mask[rows]).to_host()
        for rows in (slice(0, 5), slice(5, 8))
    )
    figures = quality_report(first + second, num_high=1)
    f = np.where(x > 0.5, x, 0.0)
    pairs = mask[:, 1:] & mask[:, :-1]
    expected = [
        np.corrcoef(f[:, :-1, z][pairs], f[:, 1:, z][pairs])[0, 1] for z in range(4)
    ]
    assert figures["autocorrelation"]["high"] == pytest.approx(expected[0], abs=1e-5)
    assert figures["autocorrelation"]["all"] == pytest.approx(
        np.mean(expected), abs=1e-5
    )


def test_smoothness_is_averaged_over_the_sequences_in_which_a_group_is_active():
    """Row 0: only latent 0, slope 1. Row 1: only latent 1, slope 1/2 (x also moves)."""
    x = jnp.array([[[1.0, 0.0], [3.0, 0.0]], [[0.0, 1.0], [-(3.0**0.5), 2.0]]])
    figures = quality_report(measure_quality(identity(), x, all_of(x)), num_high=1)
    assert figures["smoothness"] == pytest.approx(
        {"high": 1.0, "low": 0.5, "all": 0.75}, rel=1e-6
    )


def test_smoothness_and_variation_equal_the_authors():
    """In a sequence of 8 tokens, they sum the variation over its 7 pairs."""
    golden = json.loads((GOLDEN / "expected.json").read_text())
    tsae = load(GOLDEN / "TemporalMatryoshkaBatchTopKSAE")
    x = jnp.array(golden["x"], jnp.float32)[None]
    figures = quality_report(
        measure_quality(tsae, x, all_of(x)), num_high=tsae.num_high
    )
    assert figures["smoothness"] == pytest.approx(
        golden["temporal"]["smoothness"], rel=1e-5
    )
    for name, total in golden["temporal"]["variation"].items():
        assert figures["variation"][name] == pytest.approx(total / 7, rel=1e-5)


def test_uncounted_tokens_are_not_read():
    x = np.array([[[2.0, 0.0], [4.0, 3.0], [0.0, 3.0], [np.nan, np.inf]]], np.float32)
    counted = jnp.array([[True, True, True, False]])
    masked = quality_report(
        measure_quality(identity(), jnp.asarray(x), counted), num_high=1
    )
    alone = quality_report(
        measure_quality(identity(), jnp.asarray(x[:, :3]), counted[:, :3]), num_high=1
    )
    assert masked == alone


def test_a_gap_parts_neighbors():
    x = jnp.array([[[1.0, 0.0], [9.0, 9.0], [3.0, 0.0]]])
    sums = measure_quality(identity(), x, jnp.array([[True, False, True]]))
    assert sums.pairs == 0
    assert sums.sequences.sum() == 0


def test_repeated_activations_have_no_slope():
    x = jnp.array([[[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]])
    figures = quality_report(measure_quality(identity(), x, all_of(x)), num_high=1)
    assert figures["smoothness"]["high"] == 1.0


def test_batches_add_up_to_the_whole():
    """Small whole numbers over 8, with 8 tokens each, make every sum exact."""
    x = jax.random.randint(jax.random.key(1), (4, 4, 2), 0, 5).astype(jnp.float32)
    tsae = identity()
    whole = measure_quality(tsae, x, all_of(x)).to_host()
    parts = [
        measure_quality(tsae, half, all_of(half)).to_host() for half in (x[:2], x[2:])
    ]
    together = parts[0] + parts[1]
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-6), together, whole
    )
    assert (
        quality_report(together, num_high=1)["fve"]
        == quality_report(whole, num_high=1)["fve"]
    )


def test_a_far_mean_costs_no_digits_of_the_variance():
    """For two batches at 1000 +- 1 the scatter is 4, though sum x^2 is 4 million."""
    x = jnp.array([[[999.0, 0.0], [1001.0, 0.0]]])
    sums = measure_quality(silent([1000.0, 0.0]), x, all_of(x)).to_host()
    assert (sums + sums).scatter == 4.0
    assert quality_report(sums + sums, num_high=3)["fve"] == 0.0


def test_density_counts_latents_by_decade():
    """Rates 1 and 1/8 = 10^-0.9 fall into the bins that end at 0 and at -0.5."""
    x = jnp.ones((1, 8, 2)).at[:, 1:, 1].set(0.0)
    density = quality_report(measure_quality(identity(), x, all_of(x)), num_high=1)[
        "density"
    ]
    counts = dict(zip(density["edges"], density["counts"], strict=True))
    assert counts[0.0] == counts[-0.5] == 1
    assert sum(density["counts"]) == 2
    assert density["never"] == 0


def test_nothing_counted_is_an_error():
    x = jnp.ones((1, 2, 2))
    with pytest.raises(ValueError, match="no token was counted"):
        quality_report(measure_quality(identity(), x, ~all_of(x)), num_high=1)


def test_a_shuffled_dictionary_is_matched_row_by_row():
    key, noise = jax.random.split(jax.random.key(0))
    decoder = jax.random.normal(key, (40, 16))
    order = np.random.default_rng(0).permutation(40)
    scaled = 3.0 * decoder[order] + 0.05 * jax.random.normal(noise, (40, 16))
    match = match_decoders(decoder, scaled)
    np.testing.assert_array_equal(order[match.nearest], np.arange(40))
    assert match.mutual.all()
    unit = [
        np.asarray(d / jnp.linalg.norm(d, axis=1, keepdims=True))
        for d in (decoder, scaled)
    ]
    _, optimal = scipy.optimize.linear_sum_assignment(unit[0] @ unit[1].T, True)
    np.testing.assert_array_equal(match.nearest, optimal)


def test_two_copies_cannot_both_be_the_same_latent():
    """Rows are e0 and e0 + small; the other has e0 once and chooses the exact one."""
    decoder = jnp.array([[1.0, 0.0], [1.0, 0.1]])
    match = match_decoders(decoder, jnp.array([[2.0, 0.0], [0.0, -1.0]]))
    np.testing.assert_array_equal(match.nearest, [0, 0])
    np.testing.assert_array_equal(match.mutual, [True, False])


def test_stability_is_one_for_a_latent_of_the_data_and_less_for_one_of_the_seed():
    decoder = jnp.eye(3)
    same = jnp.eye(3)[::-1]
    half = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])  # e0, and between e1 and e2
    found = seed_cosine(decoder, [same, half])
    # e1 and e2 are equally near the last row, which chooses the first.
    np.testing.assert_allclose(found, [1.0, (1 + 0.5**0.5) / 2, 0.5], rtol=1e-6)


def test_blocks_of_rows_change_nothing(monkeypatch):
    keys = jax.random.split(jax.random.key(2))
    a, b = (jax.random.normal(key, (23, 8)) for key in keys)
    whole = match_decoders(a, b)
    monkeypatch.setattr("sae_jax.stats.quality._BLOCK_ROWS", 5)
    parts = match_decoders(a, b)
    np.testing.assert_array_equal(parts.nearest, whole.nearest)
    np.testing.assert_array_equal(parts.mutual, whole.mutual)
