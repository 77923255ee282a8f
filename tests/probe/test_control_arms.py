"""Arms of an intervention: no control equals the target, and all draws differ.

Only the autoencoder and the clean stream matter here, so no policy is needed.
"""

import itertools

import numpy as np
import pytest

from rlvr_jax.probe.intervene import Calibration, InterventionSpec, make_arms
from sae_jax.edits import measure_firing
from sae_jax.sae import TSAE

WIDTH, LATENTS, DRAWS = 16, 64, 6
TSAE_ = TSAE.init(0, width=WIDTH, latents=LATENTS)
X = np.random.default_rng(1).normal(size=(200, WIDTH)).astype(np.float32)
CALIBRATION = Calibration(X, measure_firing(TSAE_, X))
SPEC = InterventionSpec(
    layer=1,
    latents=(3, 5),
    mode="ablate",
    strengths=(0.5, 1.0),
    num_controls=DRAWS,
    scope="completion",
)


def arms_of(seed=0, spec=SPEC):
    """Returns the arms by kind and strength."""
    found = {}
    for arm in make_arms(spec, TSAE_, CALIBRATION, seed=seed):
        found.setdefault((arm.kind, arm.strength), []).append(arm)
    return found


def moves(arm):
    """Returns how far the arm moves each token of the clean stream."""
    return np.asarray(arm.edit.delta(X))


def alignment(one, other):
    """Returns the cosine between two moves, over all tokens together."""
    norms = np.linalg.norm(one) * np.linalg.norm(other)
    return float((one * other).sum() / norms)


@pytest.mark.parametrize("kind", ["random latents", "random direction"])
@pytest.mark.parametrize("strength", SPEC.strengths)
def test_a_control_moves_the_stream_as_far_in_another_direction(kind, strength):
    arms = arms_of()
    (target,) = arms["target", strength]
    draws = arms[kind, strength]
    assert [arm.control_index for arm in draws] == [*range(DRAWS)]
    for arm in draws:
        far = np.linalg.norm(moves(arm), axis=1).mean()
        assert far == pytest.approx(
            np.linalg.norm(moves(target), axis=1).mean(), rel=1e-4
        )
        assert abs(alignment(moves(arm), moves(target))) < 0.9
    for one, other in itertools.combinations(draws, 2):
        assert abs(alignment(moves(one), moves(other))) < 0.95


def test_random_latents_are_never_the_target_latents():
    for seed in range(5):
        draws = [arm.latents for arm in arms_of(seed)["random latents", 1.0]]
        assert len({frozenset(each) for each in draws}) == DRAWS
        assert not set(SPEC.latents) & {latent for each in draws for latent in each}


def test_a_random_direction_is_one_direction_for_every_token():
    for arm in arms_of()["random direction", 1.0]:
        moved = moves(arm)
        along = moved[np.linalg.norm(moved, axis=1) > 1e-6]
        assert len(along) > 20
        units = along / np.linalg.norm(along, axis=1, keepdims=True)
        assert units == pytest.approx(np.tile(units[:1], (len(units), 1)), abs=1e-5)
    # The target moves tokens in the plane of its two decoder rows.
    (target,) = arms_of()["target", 1.0]
    rank = np.linalg.matrix_rank(moves(target), tol=1e-4)
    assert rank == 2


@pytest.mark.parametrize("kind", ["random latents", "random direction"])
def test_controls_are_drawn_by_the_seed_once_for_all_strengths(kind):
    first, again, other = (arms_of(seed) for seed in (0, 0, 1))
    for strength in SPEC.strengths:
        for one, same in zip(first[kind, strength], again[kind, strength], strict=True):
            np.testing.assert_array_equal(moves(one), moves(same))
    half, whole = (first[kind, strength] for strength in SPEC.strengths)
    for weak, strong in zip(half, whole, strict=True):
        assert alignment(moves(weak), moves(strong)) == pytest.approx(1, abs=1e-5)
    apart = [
        abs(alignment(moves(one), moves(new)))
        for one, new in zip(first[kind, 1.0], other[kind, 1.0], strict=True)
    ]
    assert min(apart) < 0.9


def test_the_null_edit_moves_nothing_and_is_made_once():
    arms = arms_of()
    nulls = [arm for (kind, _), each in arms.items() if kind == "null" for arm in each]
    (null,) = nulls
    assert not moves(null).any()
    assert null.mean_shift == 0
    (target,) = arms["target", 1.0]
    assert np.abs(moves(target)).max() > 0.01
