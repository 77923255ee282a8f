"""Controls of a gradient's direction: each has its own weights."""

import types

import numpy as np
import pytest

from rlvr_jax.analysis.credit.weights import FEATURES, SURPRISE
from rlvr_jax.analysis.gradients import command
from rlvr_jax.analysis.gradients.measure import (
    EVEN,
    compare_directions,
    shuffle_weights,
)

B, T, D = 4, 9, 40
LENGTHS = np.array([9, 7, 9, 5])
INSIDE = np.arange(T) < LENGTHS[:, None]
LAYER = 3


class Gradients:
    """A policy with a known gradient: each token pulls in a random direction."""

    def __init__(self, policy=None):
        self.asked = []

    def make_batch(self, sampled):
        return types.SimpleNamespace(
            tokens=np.zeros((B, T)), lengths=LENGTHS, pulls=sampled.pulls
        )

    def gradient(self, batch, weights):
        self.asked.append(np.array(weights))
        pull = np.einsum("bt,btd->d", np.where(INSIDE, weights, 0), batch.pulls)
        return {"w": pull.astype(np.float32)}


def sampled(rng):
    """Returns a batch of noise; its tokens share no direction."""
    pulls = rng.normal(size=(B, T, D))
    groups = types.SimpleNamespace(rollouts=None)
    return types.SimpleNamespace(pulls=pulls, advantages=np.ones(1), groups=groups)


def test_each_kind_of_weight_is_measured_by_itself():
    rng = np.random.default_rng(0)
    features, surprise, *draws = np.where(INSIDE, rng.random((4, B, T)), 0.0)
    gradients = Gradients()
    reference = {"w": np.ones(D, np.float32)}
    batch = sampled(rng)
    found = command._measure(
        gradients,
        batch,
        reference,
        {FEATURES: features, SURPRISE: surprise},
        draws,
        seed=3,
    )
    even, first, second, shuffled, *of_draws = gradients.asked
    assert [*found.kinds] == [EVEN, FEATURES, SURPRISE, command._SHUFFLED]
    assert (even == 1).all()
    np.testing.assert_array_equal(first, features)
    np.testing.assert_array_equal(second, surprise)
    np.testing.assert_array_equal(of_draws, draws)
    # Shuffled: each row keeps its weights in another order, and padding stays 0.
    np.testing.assert_array_equal(np.sort(shuffled, axis=1), np.sort(features, axis=1))
    assert (shuffled != features)[INSIDE].mean() > 0.5
    assert not shuffled[~INSIDE].any()
    assert len(set(found.kinds.values())) == 4
    again = shuffle_weights(features, LENGTHS, seed=4)
    assert (again != shuffled).any()


@pytest.fixture
def measure(monkeypatch):
    """Returns the comparison of batches, and the batches that chose the controls."""
    monkeypatch.setattr(command, "PolicyGradients", Gradients)
    monkeypatch.setattr(command, "clean_residuals", lambda *_, **__: None)

    def compare(batches, *, num_reference):
        drawn_on = []

        def draw_weights(first):
            drawn_on.append(first)
            rng = np.random.default_rng(7)
            return types.SimpleNamespace(
                selection=types.SimpleNamespace(layer=LAYER),
                weigh=lambda *_: (
                    {FEATURES: np.where(INSIDE, rng.random((B, T)), 0.0)},
                    [np.where(INSIDE, rng.random((B, T)), 0.0) for _ in range(3)],
                ),
            )

        found = command._compare(
            None,
            iter(batches),
            draw_weights,
            num_reference=num_reference,
            num_batches=len(batches) - num_reference,
        )
        return found, drawn_on

    return compare


def test_on_noise_no_weights_point_to_the_gradient_of_other_batches(measure):
    """The mean cosine of 100 batches is 0 with an error of 0.016.

    A batch that is part of the reference would have a cosine of 0.3.
    """
    rng = np.random.default_rng(1)
    batches = [sampled(rng) for _ in range(110)]
    found, drawn_on = measure(batches, num_reference=10)
    assert found.num_batches == 100
    for kind in found.kinds.values():
        assert abs(kind.cosine.value) < 0.06
        assert kind.cosine.low < 0 < kind.cosine.high
    assert found.draws.low < 0 < found.draws.high
    assert drawn_on == [batches[0]]  # controls are chosen on a reference batch


def test_batches_are_read_at_the_layer_of_the_features(measure, monkeypatch):
    layers = []
    monkeypatch.setattr(
        command, "clean_residuals", lambda *_, layer: layers.append(layer)
    )
    rng = np.random.default_rng(0)
    measure([sampled(rng) for _ in range(3)], num_reference=1)
    assert layers == [LAYER, LAYER]


def test_a_direction_that_all_batches_share_is_found(measure):
    rng = np.random.default_rng(2)
    common = 0.5 * rng.normal(size=D)
    batches = [sampled(rng) for _ in range(40)]
    for batch in batches:
        batch.pulls += common
    found, _ = measure(batches, num_reference=10)
    assert found.kinds[EVEN].cosine.low > 0.5


def test_directions_are_paired_by_batch_in_any_order():
    rng = np.random.default_rng(3)
    common = rng.normal(size=20)
    cosines = {EVEN: common, "ours": common + 0.1 + 0.01 * rng.normal(size=20)}
    draws = common + 0.01 * rng.normal(size=(5, 20))
    order = rng.permutation(20)
    first = compare_directions(cosines, draws)
    again = compare_directions(
        {name: each[order] for name, each in cosines.items()}, draws[:, order]
    )
    for name in ("less_even", "less_draws"):
        one, other = (getattr(each.kinds["ours"], name) for each in (first, again))
        assert one == pytest.approx(other)
        assert one.high - one.low < 0.02  # unpaired it is near 1
