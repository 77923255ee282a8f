"""Sparse products have the values and the gradients of dense ones."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.config import MeshConfig
from job_jax.mesh import make_mesh
from sae_jax import optimize
from sae_jax.config import Config, LossConfig, OptimizerConfig, SAEConfig, TrainConfig
from sae_jax.latents import find_sparse, matmul
from sae_jax.losses import tsae_loss
from sae_jax.sae import TSAE
from sae_jax.sparse import find_kept
from sae_jax.types import Pairs

RNG = np.random.default_rng(5)
B, D, Z, K = 128, 12, 300, 4  # the number of latents is not a multiple of a word's bits
SAE = SAEConfig(latents=Z, k=K, group_fractions=(0.3, 0.7), topk_tolerance=0.0)
LOSS = LossConfig(contrast_block_size=0, dead_after_tokens=100)
DOT = functools.partial(matmul, dtype="float32")


def dictionary() -> TSAE:
    tsae = TSAE.init(0, width=D, latents=Z, group_sizes=SAE.group_sizes)
    bias = 0.1 * RNG.standard_normal(D)
    encoder_bias = 0.1 * RNG.standard_normal(Z)
    return dataclasses.replace(
        tsae,
        decoder_bias=jnp.asarray(bias, jnp.float32),
        encoder_bias=jnp.asarray(encoder_bias, jnp.float32),
    )


@pytest.fixture(autouse=True)
def same_draws():
    """Every test draws the same numbers, whichever tests ran before it.

    With this seed no two candidates are so close that rounding decides which is kept.
    """
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


def some_pairs(*, loud: int = 0) -> Pairs:
    """Returns pairs; the first `loud` are long and therefore keep many latents."""
    x, noise = RNG.standard_normal((2, B, D)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[:loud] *= 10
    valid = jnp.arange(B) < B - 3
    x[~valid] = np.nan
    return Pairs(x=jnp.asarray(x), positive=jnp.asarray(x + 0.2 * noise), valid=valid)


def both(tsae, pairs, *, sae=SAE, loss=LOSS, entries, silence=0):
    """Returns the sparse choice, and values and gradients, sparse and dense."""
    find = functools.partial(
        find_sparse, sae=sae, config=loss, entries=entries, dot=DOT
    )
    found = jax.jit(find)(tsae, pairs)

    def computed(found):
        return jax.value_and_grad(tsae_loss, has_aux=True)(
            tsae,
            pairs,
            jnp.full(Z, silence).at[: Z // 2].set(0),
            sae=sae,
            config=loss,
            alpha=0.3,
            found=found,
        )

    return found, jax.jit(computed)(found), jax.jit(computed)(None)


def same(ours, theirs, *, tolerance=6e-6) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        finite = np.asarray(b)[np.isfinite(b)]
        scale = np.abs(finite).max(initial=0.0)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=tolerance * scale)


@pytest.mark.parametrize(
    ("changes", "activation", "loud"),
    [
        ({}, "batch_topk", 0),
        ({}, "batch_topk", 2),
        ({"positive_sparsity": "own"}, "batch_topk", 2),
        ({"positive_sparsity": "own", "contrast": "l1_cosine"}, "topk", 0),
        ({"alpha": 0.0}, "topk", 1),
    ],
    ids=["plain", "crowded", "own", "topk", "no contrast"],
)
def test_values_and_gradients_are_the_dense_ones(changes, activation, loud):
    sae = dataclasses.replace(SAE, activation=activation)
    loss = dataclasses.replace(LOSS, **changes)
    pairs = some_pairs(loud=loud)
    found, sparse, dense = both(
        dictionary(), pairs, sae=sae, loss=loss, entries=6 * K, silence=200
    )
    assert found.fits
    crowded = found.tokens.crowded
    expected = loud if activation == "batch_topk" else 0
    assert np.sum(np.asarray(crowded) < B) == expected
    assert dense[0][1].auxk > 0
    assert sparse[0][1].num_active == K * (B - 3)
    same(sparse, dense)


def test_a_threshold_of_a_large_batch_is_searched_among_candidates(monkeypatch):
    monkeypatch.setattr("sae_jax.sparsity._SAMPLE_SIZE", 1 << 12)
    found, sparse, dense = both(dictionary(), some_pairs(loud=1), entries=8 * K)
    assert found.fits
    assert found.active == dense[0][1].num_active
    same(sparse, dense)


def test_a_misleading_sample_is_reported(monkeypatch):
    monkeypatch.setattr(
        "sae_jax.latents.estimate_bounds", lambda parts, count: (jnp.float32(9),) * 2
    )
    monkeypatch.setattr("sae_jax.latents.is_large", lambda size: True)
    alone = dataclasses.replace(LOSS, alpha=0.0)
    find = functools.partial(find_sparse, sae=SAE, config=alone, entries=6 * K, dot=DOT)
    assert not jax.jit(find)(dictionary(), some_pairs()).fits


def test_kept_entries_equal_a_plain_search():
    pre = RNG.standard_normal((7, 100)).astype(np.float32)
    threshold = np.array([[0.5], [1.0], [9.0], [0.0], [2.0], [1.5], [1.0]], np.float32)
    find = jax.jit(functools.partial(find_kept, entries=40))
    kept = jax.device_get(find(pre, threshold))
    for row in range(7):
        (at,) = np.nonzero(pre[row] >= threshold[row])
        if len(at) > 40:
            assert row == kept.crowded[0]
            assert not np.any(kept.value[row])
        else:
            np.testing.assert_array_equal(kept.index[row, : len(at)], at)
            np.testing.assert_array_equal(kept.value[row, : len(at)], pre[row, at])
            assert not np.any(kept.value[row, len(at) :])
    assert kept.fits
    assert kept.crowded.tolist() == [3]
    assert not find(pre, threshold * 0).fits


CONFIG = Config(
    sae=SAE,
    loss=dataclasses.replace(LOSS, dead_after_tokens=2 * B),
    optimizer=OptimizerConfig(learning_rate=0.01, warmup_steps=0),
    train=TrainConfig(steps=10, threshold_start_step=1, products="sparse"),
)


@pytest.mark.parametrize("loud", [0, 1, 40], ids=["no crowd", "a few", "a crowd"])
def test_training_steps_are_the_dense_ones(loud):
    """Latents may die, and a batch may have too many crowded rows."""
    dense = dataclasses.replace(
        CONFIG, train=dataclasses.replace(CONFIG.train, products="dense")
    )
    data = [some_pairs(loud=loud) for _ in range(5)]
    states = []
    for config in (CONFIG, dense):
        state = optimize.init_state(data[0], config=config)
        dead = []
        for batch in data:
            state, report = optimize.train_step(state, batch, config=config)
            dead.append(int(report.dead.max()))
        states.append((state.tsae, report, state.tokens_since_fired))
    assert dead[0] == 0 < dead[-1]
    same(*states, tolerance=5e-3)  # Adam divides small differences by small gradients


def test_eight_devices_take_sparse_steps_as_one_does():
    data = [some_pairs(loud=1) for _ in range(2)]

    def trained():
        state = optimize.init_state(data[0], config=CONFIG)
        for batch in data:
            state, report = optimize.train_step(state, batch, config=CONFIG)
        return state.tsae, report, state.tokens_since_fired

    one = trained()
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        eight = trained()
    assert len(eight[0].encoder.sharding.device_set) == 8
    same(eight, one, tolerance=5e-3)  # as above


def test_auxk_of_few_dead_latents_reads_their_columns_alone():
    tsae, pairs = dictionary(), some_pairs()
    silence = jnp.zeros(Z, jnp.int32).at[jnp.array([5, 77, Z - 1])].set(10**6)
    loss = dataclasses.replace(LOSS, dead_after_tokens=10**5)
    arguments = {"sae": SAE, "config": loss, "alpha": 0.3}

    few, all_of_them = (
        jax.jit(jax.value_and_grad(functools.partial(tsae_loss, **part), has_aux=True))(
            tsae, pairs, silence
        )
        for part in ({**arguments, "max_dead": 8}, arguments)
    )
    assert 0 < few[0][1].num_dead <= 3
    assert few[0][1].auxk > 0
    same(few, all_of_them)


def test_products_are_sparse_by_themselves_where_that_is_faster():
    """The threshold of `auto`, on one CPU device and on several."""
    count = optimize._count_entries
    auto = dataclasses.replace(
        CONFIG, train=dataclasses.replace(CONFIG.train, products="auto")
    )
    wide = dataclasses.replace(auto, sae=SAEConfig(latents=4096, k=32))
    assert count(auto) == 3 * K
    narrow = dataclasses.replace(SAE, k=2 * K)
    assert count(dataclasses.replace(auto, sae=narrow)) is None
    assert count(wide) == 96
    assert count(CONFIG) == 3 * K
    half = dataclasses.replace(wide.train, compute_dtype="bfloat16")
    assert count(dataclasses.replace(wide, train=half)) is None
    with jax.set_mesh(jax.make_mesh((2,), ("data",))):
        assert count(wide) is None
