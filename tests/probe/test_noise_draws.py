"""Draws of weight noise: null, check and other noise share no random key.

The check treats noise as if it were RL. If it reused the null's draws, it could not
find anything. To be fast, each draw here returns the length of its noise instead of
reading a policy.
"""

import itertools
import types
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.working import NARRATOR
from rlvr_jax.probe import sae_probe, weight_noise
from rlvr_jax.probe.weight_noise import (
    NUM_DRAWS,
    NoiseReadings,
    add_matched_noise,
    read_under_noise,
)
from rlvr_jax.run.setup import RunSetup
from sae_jax.sae import TSAE
from tests.support.moved_policies import move_at_random

BEFORE = {"a": jnp.ones((3, 2)), "b": jnp.full((3, 2), 2.0)}
AFTER = {"a": jnp.full((3, 2), 1.5), "b": jnp.full((3, 2), 2.5)}
TEXTS = types.SimpleNamespace(
    tokens=np.zeros((2, 3), np.int32), problem_ids=("p0", "p1")
)
TSAE_ = types.SimpleNamespace(width=4)


def reading(drift):
    nothing = np.zeros((2, 5), np.float32)
    return weight_noise._Reading(nothing, nothing, np.ones(2), None, drift)


@pytest.fixture
def keys_of(monkeypatch):
    """Returns the keys of all draws under a key, in order, one for each name."""
    used = []

    def draw_directions(params, key):
        assert params is BEFORE
        used.append(tuple(np.asarray(jax.random.key_data(key)).tolist()))
        return len(used)

    def read_noisy(graphdef, params, lengths, *, directions, **_):
        assert directions == len(used)
        return reading(float(sum(lengths.values())))

    monkeypatch.setattr(weight_noise, "_draw_directions", draw_directions)
    monkeypatch.setattr(weight_noise, "_read_noisy", read_noisy)
    monkeypatch.setattr(weight_noise, "_read", lambda *_, **__: reading(1.0))

    def draw(key):
        used.clear()
        found = read_under_noise(None, BEFORE, AFTER, TSAE_, TEXTS, layer=0, key=key)
        names = [
            f"{kind}{i}" for kind, count in NUM_DRAWS.items() for i in range(count)
        ]
        assert [*found.sums] == ["before", *names]
        return dict(zip(names, used, strict=True))

    return draw


def test_no_two_draws_of_any_kind_share_a_key(keys_of):
    keys = keys_of(jax.random.key(0))
    assert len(keys) == sum(NUM_DRAWS.values())
    by_kind = {
        kind: {key for name, key in keys.items() if name.startswith(kind)}
        for kind in NUM_DRAWS
    }
    assert {kind: len(each) for kind, each in by_kind.items()} == NUM_DRAWS
    for one, other in itertools.combinations(by_kind.values(), 2):
        assert not one & other


def test_another_seed_has_no_draw_of_this_one(keys_of):
    """The key depends on the seed of the run, so two seeds share no draw."""
    runs = [
        set(keys_of(RunSetup.stream_key(_setup(seed), "noise")).values())
        for seed in range(3)
    ]
    for one, other in itertools.combinations(runs, 2):
        assert not one & other
    again = keys_of(RunSetup.stream_key(_setup(1), "noise")).values()
    assert set(again) == runs[1]


def _setup(seed):
    return types.SimpleNamespace(config=types.SimpleNamespace(seed=seed))


def test_noise_has_its_own_random_stream(monkeypatch, tmp_path):
    """Noise does not share the stream that samples completions."""
    asked = []
    probe = types.SimpleNamespace(write_noise=lambda *_, key, **__: asked.append(key))
    setup = types.SimpleNamespace(
        config=types.SimpleNamespace(
            probe=types.SimpleNamespace(load=lambda *_: probe)
        ),
        mesh=None,
        graphdef=None,
        shard_batch=lambda texts: texts,
        stream_key=lambda name: name,
    )
    monkeypatch.setattr(weight_noise.ReferenceTexts, "load", lambda _: TEXTS)
    weight_noise.write_noise(setup, tmp_path, before=BEFORE, after=AFTER, step=3)
    assert asked == ["noise"]


def test_each_tensor_moves_in_its_own_direction():
    """Two tensors of the same shape get different noise."""
    lengths = weight_noise._tensor_norms(BEFORE)
    moved, other = (move_at_random(BEFORE, lengths, seed=seed) for seed in range(2))
    noise = {name: np.ravel(moved[name] - BEFORE[name]) for name in BEFORE}
    for name, length in lengths.items():
        assert np.linalg.norm(noise[name]) == pytest.approx(float(length), rel=1e-5)
    cosine = noise["a"] @ noise["b"] / np.prod([*map(np.linalg.norm, noise.values())])
    assert abs(cosine) < 0.99
    assert np.abs(other["a"] - moved["a"]).max() > 0.01


def test_noise_is_split_over_devices_as_the_parameters_are():
    """Otherwise each device would hold the noise of the whole policy."""
    mesh = jax.make_mesh((8,), ("fsdp",))
    split, whole = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (["fsdp"], []))
    params = jax.device_put(
        {"a": jnp.ones((16, 2)), "b": BEFORE["b"]}, {"a": split, "b": whole}
    )
    drawn = weight_noise._draw_directions(params, jax.random.key(0))
    assert (drawn["a"].sharding, drawn["b"].sharding) == (split, whole)
    assert np.linalg.norm(drawn["a"]) == pytest.approx(1.0, rel=1e-5)


def test_matched_noise_of_another_key_is_other_noise():
    """Noise for crosscoders has the right size, and its key decides its direction."""

    def drift(params):
        return float(jnp.sqrt(sum(((params[n] - BEFORE[n]) ** 2).sum() for n in "ab")))

    found = [
        add_matched_noise(BEFORE, drift, target=0.7, key=jax.random.key(seed))
        for seed in (0, 0, 1)
    ]
    for params in found:
        assert drift(params) == pytest.approx(0.7, rel=0.021)
    np.testing.assert_array_equal(found[0]["a"], found[1]["a"])
    assert np.abs(found[0]["a"] - found[2]["a"]).max() > 0.01


def test_draws_are_parts_of_one_activity(monkeypatch, tmp_path):
    """One draw may take less than ten seconds: alone it would never be reported."""
    shown = []

    def read(*_, **__):
        shown.extend(NARRATOR._works)
        return readings()

    monkeypatch.setattr(sae_probe, "read_under_noise", read)
    probe = sae_probe.SAEProbe.without_features(
        TSAE.init(jax.random.key(0), width=4, latents=8), layer=1
    )
    probe.write_noise(
        tmp_path,
        None,
        before=BEFORE,
        after=AFTER,
        texts=TEXTS,
        step=3,
        key=jax.random.key(0),
    )
    assert [work.activity for work in shown] == ["reading texts under weight noise"]
    assert weight_noise.noise_file(tmp_path, 3).is_file()


def readings():
    """Returns readings whose sums encode the draw's kind and number, and the text."""
    names = ["before", *(f"{k}{i}" for k, n in NUM_DRAWS.items() for i in range(n))]
    sums = {
        name: 1000.0 * at + 10.0 * np.arange(4)[:, None] + np.arange(3)
        for at, name in enumerate(names)
    }
    return NoiseReadings(
        problem_ids=("p0", "p1", "p2", "p3"),
        tokens=np.array([5.0, 6.0, 7.0, 8.0]),
        sums=sums,
        fired={name: -array for name, array in sums.items()},
        stream_rms=2.0,
        drift={name: float(at) for at, name in enumerate(["rl", *names[1:]])},
        weight_change={},
    )


@pytest.mark.parametrize("kind", NUM_DRAWS)
def test_each_kind_has_its_own_draws(kind):
    """The first draw of `drift` has number 1, of `check` 21, of `norm` 26."""
    first = 1 + sum(
        count
        for name, count in NUM_DRAWS.items()
        if [*NUM_DRAWS].index(name) < [*NUM_DRAWS].index(kind)
    )
    found = [*readings().draws(kind, ["p0"])]
    moved = [float(part.sum_change[0, 0]) for part in found]
    numbers = range(first, first + NUM_DRAWS[kind])
    assert moved == [1000.0 * number for number in numbers]
    assert [float(part.fired_change[0, 0]) for part in found] == [-x for x in moved]
    assert readings().relative_drift(kind) == pytest.approx(np.mean(numbers) / 2.0)


def test_texts_are_found_by_their_problem_in_any_order():
    chosen = ["p3", "p0", "p2"]
    first = next(readings().draws("check", chosen))
    assert first.tokens.tolist() == [8.0, 5.0, 7.0]
    assert first.sum[:, 0].tolist() == [30.0, 0.0, 20.0]
    assert first.fired[:, 1].tolist() == [-31.0, -1.0, -21.0]
    assert (first.sum_change == 21_000.0).all()  # each text is compared with itself
    assert (first.fired_change == -21_000.0).all()


def test_each_draw_says_its_number_and_the_time_left(monkeypatch, keys_of):
    """The clock moves 4 s a reading: 12 s for the first 2 draws, 6 s for each of 28."""
    said = []
    clock = itertools.count(0, 4)
    monkeypatch.setattr(weight_noise.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(
        weight_noise, "working", lambda text: said.append(text) or nullcontext()
    )
    keys_of(jax.random.key(0))
    assert len(said) == sum(NUM_DRAWS.values()) == 30
    assert said[0] == "draw 1 of 30"
    assert said[2] == "draw 3 of 30, about 2m48s left"
    assert said[-1] == "draw 30 of 30, about 4s left"
