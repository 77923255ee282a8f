"""Packed rows: completions that share a row get the same results as alone."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from job_jax.config import MeshConfig
from job_jax.mesh import batch_sharding, make_mesh
from rlvr_jax.config import SamplingConfig
from rlvr_jax.learn.batches import make_batch
from rlvr_jax.learn.logprobs import token_scores
from rlvr_jax.learn.packing import (
    count_rows,
    pack_completions,
    pack_lengths,
    pack_tokens,
    unpack,
)
from rlvr_jax.models import kernels
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.types import Prompts
from tests.support.policies import named, random_tokens, tiny_policy

P, G, S, T = 8, 4, 5, 9
PROMPT_LENGTHS = np.array([5, 2, 1, 3, 5, 4, 1, 2], np.int32)
# A full row, single tokens, an empty completion, an empty group.
LENGTHS_PG = np.array(
    [
        *([9, 1, 2, 3], [5, 4, 3, 1], [1, 1, 1, 1], [9, 2, 0, 7]),
        *([0, 0, 0, 0], [6, 3, 3, 6], [2, 8, 1, 1], [4, 4, 4, 4]),
    ],
    np.int32,
)
LENGTHS = LENGTHS_PG.reshape(-1)
MASK = np.arange(T) < LENGTHS[:, None]


@functools.cache
def packing():
    """Returns the packing of all completions."""
    return pack_completions(LENGTHS_PG, T)


def _batch(*, packed: bool, tokens=None):
    tokens = random_tokens(P * G, T, seed=2) if tokens is None else tokens
    prompts = Prompts(
        tokens=random_tokens(P, S, seed=1),
        lengths=PROMPT_LENGTHS,
        uid=np.arange(P, dtype=np.uint32),
    )
    return make_batch(
        prompts,
        np.where(MASK, tokens, 0),
        LENGTHS,
        packing=packing() if packed else None,
    )


def _fewest_rows(lengths, width):
    """Returns the fewest rows that hold the lengths, by trying every partition."""
    lengths = [n for n in lengths if n]
    for count in range(len(lengths) + 1):
        for rows in itertools.product(range(count), repeat=len(lengths)):
            sums = np.bincount(rows, weights=lengths, minlength=count)
            if (sums <= width).all():
                return count
    raise AssertionError


def test_rows_hold_what_they_must_once_and_are_hardly_more_than_the_fewest():
    random = np.random.RandomState(0)
    for _ in range(100):
        lengths, width = random.randint(0, 10, 6), 10
        rows = pack_lengths(lengths, width)
        assert sorted(g for row in rows for g in row) == list(np.flatnonzero(lengths))
        assert all(lengths[row].sum() <= width for row in rows)
        assert len(rows) <= 11 / 9 * _fewest_rows(lengths, width) + 6 / 9


def test_every_group_has_the_rows_of_the_one_that_needs_the_most():
    assert [len(pack_lengths(one, T)) for one in LENGTHS_PG] == [2, 2, 1, 2, 0, 2, 2, 2]
    assert packing().source.shape == (2 * P, T)
    assert pack_completions(np.array([[5, 5], [1, 1]]), T).source.shape == (4, T)
    assert pack_completions(np.array([[4, 5], [1, 1]]), T).source.shape == (2, T)


def test_numbers_of_rows_are_few():
    """With 8 completions any number; with 24 a multiple of 3."""
    width = 10
    for group_size, allowed in ((8, range(1, 9)), (24, range(3, 25, 3))):
        lengths = np.random.RandomState(0).randint(0, 10, (200, group_size))
        lengths[0] = 0
        lengths[1] = 9
        counts = count_rows(lengths, width)
        assert set(counts.tolist()) <= set(allowed)
        assert (counts[0], counts[1]) == (allowed[0], group_size)
        needed = np.array([len(pack_lengths(one, width)) for one in lengths])
        assert ((counts - needed)[1:] < allowed.step).all()
        assert (counts >= needed).all()


def test_packed_tokens_come_back_where_they_were_and_so_does_a_gradient():
    """The gradient against a scatter by hand, with NaN where nothing may flow."""
    tokens = random_tokens(P * G, T)
    packed_UT = np.asarray(pack_tokens(jnp.asarray(tokens), packing(), P))
    assert packed_UT.shape == (2 * P, T)
    assert (packed_UT > 0).sum() == LENGTHS.sum()
    values = np.asarray(unpack(jnp.asarray(packed_UT), packing(), P))
    np.testing.assert_array_equal(values[MASK], tokens[MASK])

    slope_BT = np.where(MASK, np.arange(P * G * T).reshape(P * G, T), np.nan)
    _, back = jax.vjp(lambda x: unpack(x, packing(), P), jnp.zeros((2 * P, T)))
    (found_UT,) = back(jnp.asarray(slope_BT, jnp.float32))
    expected_PX = np.zeros((P, 2 * T))
    target_PGT = packing().target.reshape(P, G, T)
    for p, g in np.ndindex(P, G):
        n = LENGTHS_PG[p, g]
        expected_PX[p, target_PGT[p, g, :n]] = slope_BT[p * G + g, :n]
    np.testing.assert_array_equal(found_UT, expected_PX.reshape(2 * P, T))


SHARES = np.random.RandomState(3).standard_normal((2, P * G, T)) * MASK
WINDOW = {
    "layer_types": ("sliding", "full"),
    "sliding_window": 3,
    "rope_local_theta": 100.0,
}


def _scored(batch, *, mesh=None, sampling=None, **changes):
    """Returns scores and stream, and the gradient of shares of the scores."""
    graphdef, params = nnx.split(tiny_policy(**changes))

    def value(params, batch):
        scores = token_scores(
            nnx.merge(graphdef, params),
            batch,
            sampling or SamplingParams.unmodified(),
            logits_chunk_size=4,
            packing=batch.packing,
            capture_layer=0,
        )
        logprob_shares, entropy_shares = jnp.asarray(SHARES, jnp.float32)
        mask_BT = jnp.asarray(MASK)
        return (
            jnp.where(mask_BT, logprob_shares * scores.logprobs, 0.0).sum()
            + jnp.where(mask_BT, entropy_shares * scores.entropies, 0.0).sum()
        ), scores

    function = jax.jit(jax.grad(value, has_aux=True))
    if mesh is None:
        gradient, scores = function(params, batch)
    else:
        with jax.set_mesh(mesh):
            placed = jax.device_put(batch, batch_sharding(mesh))
            gradient, scores = function(params, placed)
    return jax.device_get(scores), named(gradient)


@functools.cache
def _unpacked(**changes):
    return _scored(_batch(packed=False), **changes)


def _assert_same(found, expected):
    """Compares scores and stream at tokens of completions, gradients everywhere."""
    (scores, gradient), (scores_, gradient_) = found, expected
    np.testing.assert_allclose(scores.logprobs[MASK], scores_.logprobs[MASK], atol=1e-5)
    np.testing.assert_allclose(
        scores.entropies[MASK], scores_.entropies[MASK], atol=1e-5
    )
    reads = np.arange(T - 1) < LENGTHS[:, None] - 1
    np.testing.assert_allclose(
        scores.residual[reads], scores_.residual[reads], atol=1e-5
    )
    for name, array in gradient_.items():
        scale = np.abs(array).max()
        assert scale > 0, name
        np.testing.assert_allclose(
            gradient[name], array, rtol=0, atol=1e-5 * scale, err_msg=name
        )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {**WINDOW, "scan_layers": True},
        {**WINDOW, "attention_chunk_size": 4},
        {"layer_types": ("sliding",), "sliding_window": 3},
    ],
    ids=["full", "scanned", "chunked", "sliding"],
)
def test_packed_rows_have_the_scores_stream_and_gradient_of_each_by_itself(changes):
    changes = dict(changes)
    found = _scored(_batch(packed=True), **changes)
    _assert_same(found, _unpacked(**changes))


def test_packed_rows_are_the_same_on_eight_devices():
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    _assert_same(_scored(_batch(packed=True), mesh=mesh, **WINDOW), _unpacked(**WINDOW))


def test_a_segment_sees_nothing_of_its_neighbors():
    """The tokens of one completion change, but no bit of another's scores."""
    score = jax.jit(
        lambda batch: (
            token_scores(
                tiny_policy(),
                batch,
                SamplingParams.unmodified(),
                logits_chunk_size=0,
                packing=batch.packing,
            ).logprobs
        )
    )
    before = np.asarray(score(_batch(packed=True)))
    tokens = random_tokens(P * G, T, seed=2)
    changed = np.arange(P * G) == G  # of 5 tokens, before 4 in their row
    tokens[changed] = 2 + (tokens[changed] - 1) % 20
    after = np.asarray(score(_batch(packed=True, tokens=tokens)))
    others = MASK & ~changed[:, None]
    np.testing.assert_array_equal(after[others], before[others])
    assert (after != before)[MASK & changed[:, None]].any()


def test_a_minimum_length_counts_from_each_completions_own_start():
    sampling = SamplingParams.from_config(SamplingConfig(min_new_tokens=3))
    found, expected = (
        _scored(_batch(packed=packed), sampling=sampling)[0] for packed in (True, False)
    )
    np.testing.assert_allclose(found.logprobs[MASK], expected.logprobs[MASK], atol=1e-5)
    free = _unpacked()[0].logprobs
    assert (expected.logprobs != free)[MASK].any()


@pytest.mark.parametrize(
    ("platform", "changes", "packs"),
    [
        ("cpu", {}, True),
        ("cpu", {"sequence_parallel": True}, False),
        ("tpu", {}, False),
        ("tpu", {"attention": "plain"}, True),
        ("tpu", WINDOW, False),
        ("tpu", {**WINDOW, "scan_layers": True}, True),  # no kernel supports it
    ],
)
def test_rows_are_packed_where_attention_is_plain(
    platform, changes, packs, monkeypatch
):
    monkeypatch.setattr(kernels, "mesh_platform", lambda: platform)
    config = dataclasses.replace(tiny_policy().config, **changes)
    assert kernels.takes_packed_rows(config, length=256) == packs
