"""Edits of latents move exactly the chosen ones, by exactly the given amount."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from sae_jax.edits import (
    FiringStats,
    check_latents,
    make_latent_edit,
    match_shift,
    mean_shift,
    measure_firing,
    rate_matched_latents,
)
from sae_jax.sae import TSAE

D, Z, N = 8, 40, 300
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
TSAE_ = dataclasses.replace(
    TSAE.init(jax.random.key(0), width=D, latents=Z, group_sizes=(10, 30)),
    encoder_bias=jnp.asarray(RNG.normal(size=Z), jnp.float32) * 0.3,
    decoder_bias=jnp.asarray(RNG.normal(size=D), jnp.float32),
    threshold=jnp.full(Z, 0.4, jnp.float32),
)
KNOWN = measure_firing(TSAE_, X)
LATENTS = (7, 31)
F = np.asarray(TSAE_.encode(X))
DECODER = np.asarray(TSAE_.decoder)


def edit(mode="ablate", strength=1.0, latents=LATENTS, unit=KNOWN.mean_when_active):
    return make_latent_edit(
        TSAE_, latents, layer=1, mode=mode, strength=strength, mean_when_active=unit
    )


@pytest.mark.parametrize(
    ("mode", "strength"), [("ablate", 0.0), ("scale", 1.0), ("add", 0.0)]
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_where_latents_do_not_change_no_bit_of_x_does(mode, strength, dtype):
    """The autoencoder does not reconstruct x, so a re-encoded x would differ."""
    x = jnp.asarray(X, dtype)
    same = jax.jit(edit(mode, strength).__call__)(x)
    assert same.dtype == dtype
    np.testing.assert_array_equal(same, x)


def test_ablation_takes_away_exactly_the_part_that_the_latents_wrote():
    written = sum(F[:, [k]] * DECODER[k] for k in LATENTS)
    assert (written != 0).any(axis=1).sum() > 50
    np.testing.assert_allclose(edit()(X), X - written, atol=2e-6)
    silent = ~(F[:, LATENTS] > 0).any(axis=1)
    np.testing.assert_array_equal(np.asarray(edit()(X))[silent], X[silent])


@pytest.mark.parametrize(
    ("mode", "strength", "wanted"),
    [
        ("ablate", 0.25, lambda f, unit: 0.75 * f),
        ("clamp", 2.0, lambda f, unit: np.broadcast_to(2 * unit, f.shape)),
        ("scale", 3.0, lambda f, unit: 3 * f),
        ("add", 0.5, lambda f, unit: f + 0.5 * unit),
    ],
)
def test_each_mode_writes_the_latents_it_says(mode, strength, wanted):
    f, unit = F[:, LATENTS], KNOWN.mean_when_active[list(LATENTS)]
    expected = X + (wanted(f, unit) - f) @ DECODER[list(LATENTS)]
    np.testing.assert_allclose(edit(mode, strength)(X), expected, atol=2e-5)


def test_units_and_rates_are_over_tokens_on_which_a_latent_fires():
    fires = F > 0
    np.testing.assert_allclose(KNOWN.rate, fires.mean(axis=0), atol=1e-12)
    for k in np.flatnonzero(fires.any(axis=0)):
        assert KNOWN.mean_when_active[k] == pytest.approx(
            F[fires[:, k], k].mean(), rel=1e-5
        )


def test_a_direction_moves_every_token_exactly_as_far():
    direction = RNG.normal(size=D)
    target, turned = edit(), edit().toward(direction)
    far = np.linalg.norm(target.delta(X), axis=1)
    moved = np.asarray(turned.delta(X))
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), far, rtol=1e-5, atol=1e-7)
    unit = direction / np.linalg.norm(direction)
    np.testing.assert_allclose(moved @ unit, far, rtol=1e-5, atol=1e-7)


def test_a_sham_moves_nothing():
    np.testing.assert_array_equal(edit("clamp", 5.0).with_scale(0.0)(X), X)


def test_a_matched_control_moves_tokens_as_far_on_average():
    other = match_shift(edit(latents=(3, 12)), edit(), X)
    assert mean_shift(other, X) == pytest.approx(mean_shift(edit(), X), rel=1e-5)
    assert mean_shift(edit(latents=(3, 12)), X) != pytest.approx(
        mean_shift(edit(), X), rel=1e-2
    )


def test_a_control_that_moves_nothing_is_left_alone():
    nothing = edit("scale", 1.0)
    assert float(match_shift(nothing, edit(), X).scale) == 0.0


def test_controls_fire_as_often_and_are_neither_targets_nor_dead():
    rate = np.concatenate([np.zeros(20), np.geomspace(1e-3, 0.5, 180)])
    targets = (60, 150, 199)
    sets = rate_matched_latents(rate, targets, num_draws=16, seed=0)
    assert len(set(map(frozenset, sets))) == 16
    for drawn in sets:
        assert len(set(drawn)) == 3
        assert not set(drawn) & set(targets)
        # 16 candidates around a target, fewer on one side at the edge, 3.5 % apart.
        ratio = rate[list(drawn)] / rate[list(targets)]
        assert (np.abs(np.log(ratio)) < 19 * np.log(1.0354)).all()


def test_one_latent_has_as_many_controls_as_requested():
    """Above 16 it takes the nearest ones, each once."""
    rate = np.geomspace(1e-3, 0.5, 180)
    sets = rate_matched_latents(rate, (90,), num_draws=40, seed=0)
    assert {latent for (latent,) in sets} == {*range(70, 90), *range(91, 111)}


def test_controls_are_a_function_of_the_seed():
    def drawn(seed):
        return rate_matched_latents(KNOWN.rate, LATENTS, num_draws=5, seed=seed)

    assert drawn(1) == drawn(1) != drawn(2)


def test_too_few_latents_to_match_are_refused():
    rate = np.array([0.1, 0.1, 0.1, 0.0])
    with pytest.raises(ConfigError, match="1 other latents fire: too few to match 2"):
        rate_matched_latents(rate, (0, 1), num_draws=1, seed=0)
    with pytest.raises(ConfigError, match=r"2 sets of latents match \[0\], not 3"):
        rate_matched_latents(rate, (0,), num_draws=3, seed=0)


def test_mode_dose_and_latents_share_one_program():
    traced = 0

    @jax.jit
    def run(edit, x):
        nonlocal traced
        traced += 1
        return edit(x)

    for one in (edit(), edit("clamp", 3.0), edit(latents=(0, 1)).toward(np.ones(D))):
        run(one.with_scale(2.0), X)
    assert traced == 1


def test_dead_latents_are_named():
    known = FiringStats(
        rate=np.array([0.1, 0.0, 0.2, 0.0]), mean_when_active=np.zeros(4)
    )
    assert known.select_dead((0, 3, 1)) == (3, 1)


@pytest.mark.parametrize(
    ("latents", "said"),
    [
        ((), r"no latents; name some of 0\.\.39"),
        ((3, 40, -1), r"latents \[40, -1\] lie outside 0\.\.39"),
        ((3, 3), "name one of them twice"),
    ],
)
def test_latents_that_are_not_there_are_refused(latents, said):
    with pytest.raises(ConfigError, match=said):
        check_latents(TSAE_, latents)


def test_a_dictionary_that_must_be_encoded_whole_is_refused():
    with pytest.raises(ConfigError, match="keeps the 4 largest"):
        check_latents(dataclasses.replace(TSAE_, top_k=4), (0,))
