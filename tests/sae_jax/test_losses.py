"""The loss: values by hand, padding without effect, special cases in one formula."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax import losses
from sae_jax.config import LossConfig, SAEConfig
from sae_jax.losses import matmul, tsae_loss
from sae_jax.sae import TSAE
from sae_jax.types import Pairs

RNG = np.random.default_rng(0)
ROWS, WIDTH, LATENTS, K = 8, 6, 20, 3
SAE = SAEConfig(latents=LATENTS, k=K, topk_tolerance=0.0)
LOSS = LossConfig(contrast_block_size=4, dead_after_tokens=100)
DOT = functools.partial(matmul, dtype="float32")
info_nce = jax.jit(
    functools.partial(losses.info_nce, dot=DOT), static_argnames="config"
)


def dictionary() -> TSAE:
    tsae = TSAE.init(
        jax.random.key(0), width=WIDTH, latents=LATENTS, group_sizes=SAE.group_sizes
    )
    bias = 0.1 * RNG.standard_normal(WIDTH)
    return dataclasses.replace(tsae, decoder_bias=jnp.asarray(bias, jnp.float32))


def some_pairs(rows: int = ROWS) -> Pairs:
    x, noise = RNG.standard_normal((2, rows, WIDTH)).astype(np.float32)
    positive = jnp.asarray(x + 0.3 * noise)
    return Pairs(x=jnp.asarray(x), positive=positive, valid=jnp.ones(rows, bool))


@functools.partial(jax.jit, static_argnames=("sae", "loss", "compute_dtype"))
def loss_of(
    tsae,
    pairs,
    *,
    sae=SAE,
    loss=LOSS,
    tokens_since_fired=None,
    alpha=None,
    compute_dtype="float32",
):
    if tokens_since_fired is None:
        tokens_since_fired = jnp.zeros(tsae.latents, jnp.int32)
    return jax.value_and_grad(tsae_loss, has_aux=True)(
        tsae,
        pairs,
        tokens_since_fired,
        sae=sae,
        config=loss,
        alpha=loss.alpha if alpha is None else alpha,
        compute_dtype=compute_dtype,
    )


@pytest.mark.parametrize(
    ("contrast", "positive_sparsity", "activation"),
    [("infonce", "own", "batch_topk"), ("l1_cosine", "shared", "topk")],
)
def test_padding_leaves_no_trace(contrast, positive_sparsity, activation):
    loss = dataclasses.replace(
        LOSS,
        contrast=contrast,
        positive_sparsity=positive_sparsity,
        contrast_block_size=0,
    )
    sae = dataclasses.replace(SAE, activation=activation)
    tsae, pairs = dictionary(), some_pairs()
    silence = jnp.full(LATENTS, 200).at[: LATENTS // 2].set(0)
    padded = Pairs(
        x=jnp.concatenate([pairs.x, jnp.full((3, WIDTH), jnp.nan)]),
        positive=jnp.concatenate([pairs.positive, jnp.full((3, WIDTH), jnp.inf)]),
        valid=jnp.arange(ROWS + 3) < ROWS,
    )
    (value, parts), gradient = loss_of(
        tsae, pairs, sae=sae, loss=loss, tokens_since_fired=silence
    )
    (same, padded_parts), padded_gradient = loss_of(
        tsae, padded, sae=sae, loss=loss, tokens_since_fired=silence
    )
    assert parts.auxk > 0
    np.testing.assert_allclose(same, value, rtol=1e-5)
    for ours, theirs in zip(
        jax.tree.leaves((parts, gradient)),
        jax.tree.leaves((padded_parts, padded_gradient)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("before", "is_dead"), [(94, False), (95, True)])
def test_a_latent_is_dead_after_100_valid_tokens_without_it(before, is_dead):
    """The batch adds its 5 valid rows to the counters of silent latents."""
    pairs = dataclasses.replace(some_pairs(), valid=jnp.arange(ROWS) < 5)
    counts = jnp.full(LATENTS, before, jnp.int32)
    (_, parts), _ = loss_of(dictionary(), pairs, tokens_since_fired=counts)
    after = np.asarray(parts.tokens_since_fired)
    silent = after > 0
    assert 0 < silent.sum() < LATENTS
    assert set(after[silent].tolist()) == {before + 5}
    assert int(parts.num_dead) == is_dead * silent.sum()


def axes() -> TSAE:
    """Returns a dictionary whose latents are the axes."""
    return TSAE(
        encoder=jnp.eye(WIDTH),
        encoder_bias=jnp.zeros(WIDTH),
        decoder=jnp.eye(WIDTH),
        decoder_bias=jnp.zeros(WIDTH),
        threshold=jnp.zeros(WIDTH),
        group_sizes=(WIDTH,),
    )


def test_dead_latents_explain_half_of_the_width_and_share_the_spread():
    """The first axis is kept in both rows; 3 of the other five, dead axes help.

    5, 4 and 3 are explained, 2 and 1 missed: 5 in each row. About their mean, 3 on each
    axis, the residuals' squares add up to 10 in each row. 10 of 20 is half. The rows
    themselves are also 5 from their mean on the first axis: 50 + 20 over 12 numbers.
    """
    x = jnp.float32([[10, 5, 4, 3, 2, 1], [20, 1, 2, 3, 4, 5]])
    pairs = Pairs(x=x, positive=x, valid=jnp.ones(2, bool))
    loss = LossConfig(alpha=0.0, group_weights=(1.0,), dead_after_tokens=100)
    sae = SAEConfig(latents=WIDTH, k=1, group_fractions=(1.0,), topk_tolerance=0.0)
    silent = jnp.full(WIDTH, 100, jnp.int32)
    (_, parts), _ = loss_of(
        axes(), pairs, sae=sae, loss=loss, tokens_since_fired=silent
    )
    assert (int(parts.num_active), int(parts.num_dead)) == (2, 5)
    np.testing.assert_allclose(parts.auxk, 0.5, rtol=1e-6)
    np.testing.assert_allclose(parts.variance, 70 / 12, rtol=1e-6)
    np.testing.assert_allclose(parts.reconstruction, [110 / 12], rtol=1e-6)


def test_a_perfect_dictionary_loses_nothing():
    """If latents are the axes and each token is on one axis: error 0, no gradient."""
    tsae = axes()
    x = jnp.diag(jnp.arange(1.0, 7.0))
    pairs = Pairs(x=x, positive=x, valid=jnp.ones(WIDTH, bool))
    loss = LossConfig(alpha=0.0, group_weights=(1.0,))
    sae = SAEConfig(latents=WIDTH, k=1, group_fractions=(1.0,))
    (value, parts), gradient = loss_of(tsae, pairs, sae=sae, loss=loss)
    assert value == 0
    assert parts.num_active == WIDTH
    assert parts.min_kept == 1.0
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_nested_errors_on_paper():
    """Of (3, 4), the first group explains the 3; both explain all except the bias."""
    tsae = TSAE(
        encoder=jnp.eye(2),
        encoder_bias=jnp.array([0.0, -1.0]),
        decoder=jnp.eye(2),
        decoder_bias=jnp.zeros(2),
        threshold=jnp.zeros(2),
        group_sizes=(1, 1),
    )
    x = jnp.array([[3.0, 4.0]])
    pairs = Pairs(x=x, positive=x, valid=jnp.ones(1, bool))
    sae = SAEConfig(latents=2, k=2, group_fractions=(0.5, 0.5))
    loss = LossConfig(alpha=0.0, group_weights=(0.25, 2.0), mse_reduction="sum")
    (value, parts), _ = loss_of(tsae, pairs, sae=sae, loss=loss)
    np.testing.assert_allclose(parts.reconstruction, [16.0, 1.0])
    np.testing.assert_allclose(value, 0.25 * 16 + 2.0 * 1)
    mean = dataclasses.replace(loss, mse_reduction="mean")
    (halved, _), _ = loss_of(tsae, pairs, sae=sae, loss=mean)
    np.testing.assert_allclose(halved, value / 2)


def test_info_nce_of_alike_tokens_is_chance():
    z = jnp.ones((2, 16, 5))
    valid = jnp.ones((2, 16), bool)
    for directions, factor in (("mean", 1), ("sum", 2)):
        config = LossConfig(infonce_reduction=directions)
        nats = info_nce(z, z, valid, config=config)
        np.testing.assert_allclose(nats, factor * math.log(16), rtol=1e-6)


def test_info_nce_of_orthogonal_tokens_on_paper():
    """Own similarity 1, others 0: log(1 + (R - 1) exp(-1/temperature))."""
    z = 3.0 * jnp.eye(8)[None]
    nats = info_nce(z, z, jnp.ones((1, 8), bool), config=LossConfig(temperature=0.5))
    np.testing.assert_allclose(nats, math.log1p(7 * math.exp(-2)), rtol=1e-5)


def test_info_nce_asks_for_the_positive_and_for_its_row():
    """Both rows resemble only the first positive, at a similarity of 1 / 0.5 = 2.

    Among the positives the first row finds its own and the second does not, which costs
    log(e^2 + 1) - 2 and log(e^2 + 1) - 0. The rows are alike to a positive: log 2.
    """
    z, positive = jnp.float32([[[1, 0], [1, 0]]]), jnp.float32([[[1, 0], [0, 1]]])
    for reduction, factor in (("mean", 0.5), ("sum", 1.0)):
        config = LossConfig(
            similarity="dot", temperature=0.5, infonce_reduction=reduction
        )
        nats = info_nce(z, positive, jnp.ones((1, 2), bool), config=config)
        expected = factor * (math.log(math.e**2 + 1) - 1 + math.log(2))
        np.testing.assert_allclose(nats, expected, rtol=1e-6)


def test_info_nce_of_a_padded_block_is_that_of_its_valid_rows():
    z, positive = RNG.standard_normal((2, 1, 6, 4)).astype(np.float32)
    valid = np.arange(6)[None] < 4
    nats = [
        info_nce(z[:, :n], positive[:, :n], valid[:, :n], config=LossConfig())
        for n in (4, 6)
    ]
    np.testing.assert_allclose(*nats, rtol=1e-5)


def test_info_nce_of_silent_rows_has_a_finite_gradient():
    config = LossConfig(similarity="cosine")
    z = jnp.zeros((1, 4, 3)).at[0, 0, 0].set(1.0)

    def nats(z):
        return info_nce(z, z, jnp.ones((1, 4), bool), config=config)

    assert np.all(np.isfinite(jax.grad(nats)(z)))


def test_blocks_are_told_apart_on_their_own():
    """With contrast_rows, the contrast is the mean over blocks."""
    tsae, pairs = dictionary(), some_pairs()
    sae = dataclasses.replace(SAE, activation="topk")
    (_, whole), _ = loss_of(tsae, pairs, sae=sae)
    halves = [
        loss_of(tsae, jax.tree.map(lambda a, h=half: a[h], pairs), sae=sae)[0][1]
        for half in (slice(0, 4), slice(4, 8))
    ]
    mean = sum(half.contrast for half in halves) / 2
    np.testing.assert_allclose(whole.contrast, mean, rtol=1e-5)


def test_alpha_zero_is_the_loss_without_contrast():
    tsae, pairs = dictionary(), some_pairs()
    none = dataclasses.replace(LOSS, alpha=0.0)
    (plain, _), plain_gradient = loss_of(tsae, pairs, loss=none)

    (baseline, _), baseline_gradient = loss_of(tsae, pairs, alpha=0.0)
    np.testing.assert_allclose(baseline, plain, rtol=1e-6)
    for ours, theirs in zip(
        jax.tree.leaves(baseline_gradient), jax.tree.leaves(plain_gradient), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)


def test_topk_keeps_k_of_every_token_and_batch_topk_on_average():
    tsae, pairs = dictionary(), some_pairs()
    for activation in ("topk", "batch_topk"):
        sae = dataclasses.replace(SAE, activation=activation)
        (_, parts), _ = loss_of(tsae, pairs, sae=sae)
        assert parts.num_active == K * ROWS


def test_only_dead_latents_revive_and_only_in_decoder_and_encoder():
    tsae, pairs = dictionary(), some_pairs()
    without = dataclasses.replace(LOSS, auxk_coef=0.0)
    (_, parts), plain = loss_of(tsae, pairs, loss=without)
    silent = parts.tokens_since_fired > 0
    assert 0 < silent.sum() < LATENTS
    (_, revived), gradient = loss_of(
        tsae, pairs, tokens_since_fired=jnp.full(LATENTS, LOSS.dead_after_tokens)
    )
    assert revived.num_dead == silent.sum()
    change = np.abs(gradient.decoder - plain.decoder).sum(axis=1)
    assert np.all(change[~np.asarray(silent)] < 1e-6)
    assert change[np.asarray(silent)].sum() > 1e-4


def test_bfloat16_operands_keep_float32_sums():
    tsae, pairs = dictionary(), some_pairs()
    (exact, _), exact_gradient = loss_of(tsae, pairs)
    (value, parts), gradient = loss_of(tsae, pairs, compute_dtype="bfloat16")
    assert all(
        leaf.dtype in (jnp.float32, jnp.int32)
        for leaf in jax.tree.leaves((value, parts, gradient))
    )
    np.testing.assert_allclose(value, exact, rtol=0.02)
    assert value != exact
    cosine = np.vdot(gradient.decoder, exact_gradient.decoder) / np.sqrt(
        np.vdot(gradient.decoder, gradient.decoder)
        * np.vdot(exact_gradient.decoder, exact_gradient.decoder)
    )
    assert cosine > 0.98


def test_bfloat16_rounds_the_operands_and_nothing_else():
    a, b = (jax.random.normal(jax.random.key(n), (16, 16)) for n in range(2))

    def rounded(x):
        return x.astype(jnp.bfloat16).astype(jnp.float32)

    product, pullback = jax.vjp(lambda a, b: matmul(a, b, "bfloat16"), a, b)
    ct = jnp.ones_like(product) / 3
    gradients = pullback(ct)
    for found, left, right in (
        (product, a, b),
        (gradients[0], ct, b.T),
        (gradients[1], a.T, ct),
    ):
        np.testing.assert_allclose(found, rounded(left) @ rounded(right), atol=1e-4)
        assert np.abs(found - left @ right).max() > 1e-3


def test_bfloat16_rounds_the_operands_of_every_product():
    """1 + 2^-10 is 1 in bfloat16, also in both gradients' operands; sums stay exact."""
    near_one = jnp.full((1, 1), 1 + 2**-10)
    value, pull = jax.vjp(lambda a, b: matmul(a, b, "bfloat16"), near_one, near_one)
    assert value.item() == 1.0
    assert [g.item() for g in pull(near_one)] == [1.0, 1.0]
    two = matmul(jnp.array([[1.0, 2**-10]]), jnp.ones((2, 1)), "bfloat16")
    assert two.item() == 1 + 2**-10


def test_the_bias_gradient_equals_the_plain_formula():
    """The cheaper path for decoder_bias agrees with finite differences of the loss."""
    tsae, pairs = dictionary(), some_pairs()
    _, gradient = loss_of(tsae, pairs)
    for axis in range(2):
        step = jnp.zeros(WIDTH).at[axis].set(1e-2)
        values = [
            loss_of(
                dataclasses.replace(tsae, decoder_bias=tsae.decoder_bias + sign * step),
                pairs,
            )[0][0]
            for sign in (1, -1)
        ]
        slope = (values[0] - values[1]) / 2e-2
        np.testing.assert_allclose(gradient.decoder_bias[axis], slope, rtol=0.05)


@pytest.mark.parametrize(
    ("sae", "loss", "message"),
    [
        ({}, {"group_weights": (1.0,)}, "group_weights=(1.0,) does not fit the dict"),
        ({}, {"group_weights": (1.0, 1.0, 1.0)}, "groups (4, 16); give one weight"),
        ({"latents": 32}, {}, "group sizes (6, 26), the dictionary (4, 16); make"),
        (
            {"group_fractions": (1.0,)},
            {},
            "group sizes (20,), the dictionary (4, 16); make",
        ),
    ],
)
def test_configs_of_another_dictionary_are_refused(sae, loss, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        loss_of(
            dictionary(),
            some_pairs(),
            sae=dataclasses.replace(SAE, **sae),
            loss=dataclasses.replace(LOSS, **loss),
        )


def test_pairs_may_be_of_numpy_and_valid_of_whole_numbers():
    tsae, pairs = dictionary(), some_pairs()
    some = dataclasses.replace(pairs, valid=jnp.arange(ROWS) < 5)
    typed = Pairs(
        x=np.asarray(pairs.x, np.float64),
        positive=np.asarray(pairs.positive),
        valid=[1] * 5 + [0] * (ROWS - 5),
    )
    assert tsae_loss(tsae, typed, [0] * LATENTS, sae=SAE, config=LOSS, alpha=0.1)[
        0
    ] == pytest.approx(float(loss_of(tsae, some)[0][0]), rel=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"valid": jnp.ones(3, bool)}, {"x": jnp.ones((ROWS, WIDTH + 1))}]
)
def test_pairs_of_other_shapes_are_refused(wrong):
    pairs = dataclasses.replace(some_pairs(), **wrong)
    with pytest.raises(
        ValueError, match=r"must be \[B, D\], \[B, D\] and \[B\], with D=6"
    ):
        loss_of(dictionary(), pairs)
