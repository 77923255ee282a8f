"""Weight noise on a tiny policy: it moves as far as set, and claims nothing as RL.

A learned change of two latents is found among noise that moves the stream as far.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.learn.logprobs import token_scores
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.probe import splice, weight_noise
from rlvr_jax.probe.reference_texts import ReferenceTexts, stratify_texts
from rlvr_jax.probe.weight_noise import NoiseReadings, read_under_noise
from sae_jax.sae import TSAE
from sae_jax.stats.dynamics import (
    PairedSums,
    Thresholds,
    estimate_changes,
    find_changes,
)
from sae_jax.stats.noise_null import NoiseNull
from tests.support.moved_policies import move_at_random
from tests.support.policies import VOCAB_SIZE, named, random_tokens, tiny_policy

F, S, T, D, Z, LAYER = 24, 5, 24, 32, 96, 1
CUTS = Thresholds()
PLANTED = (3, 77)
NUM_CHECKS = 20
LENGTHS = np.random.default_rng(5).integers(10, T + 1, F).astype(np.int32)
TEXTS = ReferenceTexts(
    problem_ids=tuple(f"p{i}" for i in range(F)),
    prompt_tokens=random_tokens(F, S, seed=1),
    prompt_lengths=np.full(F, S, np.int32),
    tokens=random_tokens(F, T, seed=2),
    lengths=LENGTHS,
    bands=np.zeros(F, np.int32),
    outcomes=np.zeros(F, np.int32),
)
GRAPHDEF, BEFORE = nnx.split(tiny_policy())
SAE = dataclasses.replace(
    TSAE.init(3, width=D, latents=Z), threshold=jnp.full(Z, 0.4, jnp.float32)
)


def add_noise(params, *, gain, seed):
    """Returns the parameters with noise of a share of each tensor's norm."""
    rng = np.random.default_rng(seed)

    def moved(x):
        noise = rng.standard_normal(x.shape)
        noise *= gain * np.linalg.norm(np.asarray(x)) / np.linalg.norm(noise)
        return x + jnp.asarray(noise, x.dtype)

    return jax.tree.map(moved, params)


@jax.jit
@jax.grad
def aim(params):
    """Returns the PLANTED latents' slope over the latents' mean, before a ReLU."""
    states = nnx.merge(GRAPHDEF, params).hidden_states(
        TEXTS.prompt_tokens,
        TEXTS.prompt_lengths,
        TEXTS.tokens,
        capture_layers=(LAYER,),
    )
    pre_FTZ = jax.nn.softplus(states.completions.captured[0] @ SAE.encoder)
    return pre_FTZ[:, :, list(PLANTED)].mean() - pre_FTZ.mean()


def learned(params):
    """Returns the parameters after four steps of gradient ascent on PLANTED."""
    for _ in range(4):
        slope = aim(params)
        norm = np.sqrt(sum(float((x**2).sum()) for x in jax.tree.leaves(slope)))
        params = jax.tree.map(lambda x, d, n=norm: x + 0.06 / n * d, params, slope)
    return params


def readings_of(after, *, seed=0):
    return read_under_noise(
        GRAPHDEF, BEFORE, after, SAE, TEXTS, layer=LAYER, key=jax.random.key(seed)
    )


def estimates(readings, kind):
    return [estimate_changes(s) for s in readings.draws(kind, TEXTS.problem_ids)]


def read(params, stream=None):
    nothing = jnp.zeros((F, T, D), jnp.float32)
    return weight_noise._read(
        GRAPHDEF,
        params,
        tsae=SAE,
        texts=TEXTS,
        layer=LAYER,
        stream=nothing if stream is None else stream,
    )


@jax.jit
def logged_stream(params):
    """Returns the residual stream as logged steps read it, for tokens 0..T-2."""
    return token_scores(
        nnx.merge(GRAPHDEF, params),
        TEXTS,
        SamplingParams.unmodified(),
        logits_chunk_size=0,
        capture_layer=LAYER,
    ).residual


def changed_by(after):
    """Returns every feature's change, from the same tables that a run makes."""
    old, new = read(BEFORE), read(after)
    return estimate_changes(
        PairedSums(
            tokens=np.asarray(old.tokens, np.float64),
            sum=np.asarray(old.sum, np.float64),
            sum_change=np.asarray(new.sum, np.float64) - np.asarray(old.sum),
            fired=np.asarray(old.fired, np.float64),
            fired_change=np.asarray(new.fired, np.float64) - np.asarray(old.fired),
        )
    )


@pytest.fixture(scope="module")
def noisy():
    """Returns readings of a run that is pure noise, and more noise of that size."""
    with pytest.MonkeyPatch.context() as patch:
        counts = {**weight_noise.NUM_DRAWS, "check": NUM_CHECKS}
        patch.setattr(weight_noise, "NUM_DRAWS", counts)
        after = add_noise(BEFORE, gain=0.15, seed=0)
        found = readings_of(after)
        return found, estimates(found, "drift"), estimates(found, "check")


def test_every_draw_moves_the_stream_as_far_as_rl_did(noisy):
    found, _, _ = noisy
    for name, drift in found.drift.items():
        if name.startswith(("drift", "check")):
            assert drift == pytest.approx(found.drift["rl"], rel=0.021)
    assert len({round(drift, 9) for drift in found.drift.values()}) > NUM_CHECKS


def test_drift_is_the_root_mean_square_over_tokens(noisy):
    """The reference is the stream that logged steps read, in float64 NumPy."""
    found, _, _ = noisy
    streams = [
        np.asarray(logged_stream(params), np.float64)
        for params in (BEFORE, add_noise(BEFORE, gain=0.15, seed=0))
    ]
    read = np.arange(T - 1)[None] < LENGTHS[:, None] - 1
    apart = ((streams[1] - streams[0]) ** 2).sum(axis=2)[read]
    assert found.drift["rl"] == pytest.approx(np.sqrt(apart.mean()), rel=1e-5)
    size = (streams[0] ** 2).sum(axis=2)[read]
    assert found.stream_rms == pytest.approx(np.sqrt(size.mean()), rel=1e-5)
    np.testing.assert_array_equal(found.tokens, LENGTHS - 1)


def test_noise_of_equal_weight_norm_moves_each_tensor_as_far():
    """Only one tensor was changed, so the noise leaves the others unchanged."""
    after = nnx.merge(GRAPHDEF, jax.tree.map(jnp.copy, BEFORE))
    after.embedding[...] += 0.02
    lengths = weight_noise._tensor_norms(BEFORE, nnx.state(after))
    moved = move_at_random(BEFORE, lengths, seed=0)
    old, new = named(BEFORE), named(moved)
    norms = {name: np.linalg.norm(new[name] - old[name]) for name in old}
    embedding = norms.pop("embedding")
    assert embedding == pytest.approx(0.02 * np.sqrt(VOCAB_SIZE * D), rel=1e-4)
    assert set(norms.values()) == {0.0}


def test_noise_treated_as_rl_moves_many_features_and_claims_almost_none(noisy):
    """Sign flips over prompts take all noise for findings; the null does not.

    Of 21 changes 5 % may claim something: 1, and rarely more than 4.
    """
    _, drift, checks = noisy
    null = NoiseNull.from_draws(drift, CUTS)
    run = changed_by(add_noise(BEFORE, gain=0.15, seed=0))
    moved = [find_changes(each, CUTS).changed.sum() for each in [run, *checks]]
    claimed = [null.compare(each).changed.sum() for each in [run, *checks]]
    assert np.mean(moved) > 15
    assert claimed[0] == 0
    assert np.count_nonzero(claimed) <= 4


def test_a_learned_change_is_found_among_noise_of_its_drift():
    """The procedure is the same, but the change aims at two latents and moves others.

    Noise that moves the stream as far, read in the same run, claims nothing.
    """
    after = learned(BEFORE)
    found = readings_of(after)
    null = NoiseNull.from_draws(estimates(found, "drift"), CUTS)
    claims = null.compare(changed_by(after))
    assert set(PLANTED) <= set(np.flatnonzero(claims.strengthened))
    assert claims.changed.sum() > 5
    checks = [null.compare(each).changed.sum() for each in estimates(found, "check")]
    assert np.count_nonzero(checks) <= 1


def test_a_run_that_changed_nothing_is_compared_with_nothing(tmp_path):
    found = readings_of(BEFORE)
    assert found.drift["rl"] == 0.0
    assert max(found.drift.values()) == 0.0
    null = NoiseNull.from_draws(estimates(found, "drift"), CUTS)
    assert not null.compare(changed_by(BEFORE)).changed.any()
    found.save(tmp_path / "noise.npz")
    again = NoiseReadings.load(tmp_path / "noise.npz")
    assert again.drift == found.drift
    assert again.problem_ids == found.problem_ids
    for name in found.sums:
        np.testing.assert_array_equal(again.sums[name], found.sums[name])
        np.testing.assert_array_equal(again.fired[name], found.fired[name])
    with pytest.raises(ValueError, match="never read under noise"):
        next(again.draws("drift", ["p0", "elsewhere"]))


def test_texts_are_as_many_of_each_band_as_there_are():
    """There are nine easy, one medium, three hard and one that nobody could judge."""
    bands = np.array([0, 0, 0, 1, 0, 2, 0, 2, 3, 0, 0, 2, 0, 0])
    assert stratify_texts(bands, 7) == [0, 1, 2, 3, 5, 7, 11]
    assert stratify_texts(bands, 3) == [0, 3, 5]
    assert stratify_texts(bands, 14) == list(range(14))
    assert 8 not in stratify_texts(bands, 13)


def test_noise_and_rl_are_read_on_the_same_tokens_around_a_reply():
    """A token counts if the policy writes the next one: two replies, one at the end."""
    written = np.ones((F, T), bool)
    written[:, 4:6] = False
    written[0, LENGTHS[0] - 2 :] = False
    texts = dataclasses.replace(TEXTS, policy_mask=written)
    reading = {"tsae": SAE, "texts": texts, "layer": LAYER}
    under_noise = weight_noise._read(
        GRAPHDEF, BEFORE, stream=jnp.zeros((F, T, D)), **reading
    )
    by_rl = splice.measure_texts(GRAPHDEF, BEFORE, SAE, texts, layer=LAYER).latents
    np.testing.assert_array_equal(under_noise.tokens, by_rl.statistics.tokens)
    np.testing.assert_array_equal(under_noise.fired, by_rl.statistics.nonzero)
    np.testing.assert_allclose(under_noise.sum, by_rl.statistics.sum, rtol=1e-5)
    assert int(under_noise.tokens[1]) == LENGTHS[1] - 1 - 2
