"""RFGO: token weights, proxies, and no gradient through the probe."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.config import (
    Config,
    LossConfig,
    OptimizerConfig,
    RFGOConfig,
    SamplingConfig,
    TrainConfig,
)
from rlvr_jax.learn import rfgo_proxy_rewards, rfgo_token_weights
from rlvr_jax.learn.batches import with_loss_weights
from rlvr_jax.learn.logprobs import token_scores
from rlvr_jax.learn.micro_batches import MicroBatchCut, split_micro_batches
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.probe_inputs import ProbeInputs, ProbeSpec
from rlvr_jax.learn.rfgo import (
    _shuffle_weights,
    apply_rfgo,
    feature_activation,
    read_features,
    zero_feature_sums,
)
from rlvr_jax.learn.run_updates import run_updates
from rlvr_jax.learn.update import Updater
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.probe.sae_probe import LatentReader
from rlvr_jax.types import BANDS, Batch, ProbeTargets, ReasoningFeatures
from tests.support.policies import random_tokens, tiny_policy

P, G, S, T, R = 4, 4, 5, 9, 3
LENGTHS = np.int32([9, 4, 2, 1, 5, 5, 8, 3, 6, 6, 6, 6, 2, 7, 9, 4])
POLICY = tiny_policy()
D = POLICY.config.hidden_size
STEERING = RFGOConfig(
    lambda_w=0.5, lambda_p=0.1, proxy_groups="zero_variance", proxy_clip=2.0
)
# The second and fourth of the four groups have no preference.
ADVANTAGES = np.float32([1.5, -0.5, -0.5, -0.5, 0, 0, 0, 0, 1, -1, 1, -1, 0, 0, 0, 0])
PROXIED = np.repeat([False, True, False, True], G)


def _reader(**changes):
    random = np.random.RandomState(3)
    reader = LatentReader(
        center=random.standard_normal(D).astype(np.float32),
        encoder=random.standard_normal((D, R)).astype(np.float32),
        bias=np.float32([0.1, -0.2, 0.0]),
        threshold=np.float32([0.5, 0.0, 1.0]),
    )
    return dataclasses.replace(reader, **changes)


def _features():
    return ReasoningFeatures(
        weights=np.float32([0.5, -0.25, 0.25]),
        scale=np.float32([2.0, 1.0, 0.5]),
        proxy_strength=np.float32(0.1),
        key=jax.random.key(0),
    )


def _inputs():
    return ProbeInputs(reader=_reader(), reasoning_features=_features())


def _apply(stream=None, *, batch=None, config=None, shuffled=False, reader=None):
    stream = _stream() if stream is None else stream
    return _jitted_apply(
        reader or _reader(),
        stream,
        batch or _batch(),
        _features(),
        config=config or STEERING,
        shuffled=shuffled,
    )


@functools.partial(jax.jit, static_argnames=("config", "shuffled"))
def _jitted_apply(reader, stream, batch, features, *, config, shuffled):
    read = read_features(reader, stream)
    return apply_rfgo(read, batch, features, config=config, shuffle_weights=shuffled)


def _batch():
    random = np.random.RandomState(0)
    batch = Batch(
        prompt_tokens=random_tokens(P, S, seed=1),
        prompt_lengths=np.int32([5, 2, 1, 3]),
        tokens=random_tokens(P * G, T, seed=2),
        lengths=LENGTHS,
        loss_weights=np.zeros((P * G, T), np.float32),
        advantages=ADVANTAGES,
        old_logprobs=-3 + random.standard_normal((P * G, T)).astype(np.float32),
        ref_logprobs=np.zeros((P * G, T), np.float32),
        bands=np.repeat(np.int32([0, 1, -1, 2]), G),
        probe_targets=ProbeTargets(
            row=np.arange(P * G, dtype=np.int32),
            outcomes=np.int32([1, 0, 0, 0, 0, 0, 2, 0, 1, 0, 1, 0, 1, 1, 1, 1]),
            proxy_eligible=PROXIED,
            ref_features=np.maximum(
                random.standard_normal((P * G, T, R)).astype(np.float32), 0
            ),
        ),
    )
    return with_loss_weights(batch, aggregation="token_mean", max_length=T)


@functools.cache
def _stream(*, scale=1.0):
    score = nnx.jit(
        token_scores, static_argnames=("logits_chunk_size", "capture_layer")
    )
    params = jax.tree.map(lambda x: scale * x, nnx.state(POLICY))
    scores = score(
        nnx.merge(nnx.graphdef(POLICY), params),
        _batch(),
        SamplingParams.unmodified(),
        logits_chunk_size=0,
        capture_layer=1,
    )
    return np.asarray(scores.residual)


# Token weights


@pytest.mark.parametrize("lambda_w", [0.0, 0.5, 3.0])
def test_weights_have_mean_one_on_every_sequence_under_any_mask(lambda_w):
    random = np.random.RandomState(1)
    movement = 10.0 ** random.uniform(-6, 6, (64, 17)) * random.standard_normal(
        (64, 17)
    )
    mask = random.uniform(size=(64, 17)) < random.uniform(size=(64, 1))
    mask[0], mask[1], mask[2] = True, False, np.arange(17) == 4
    movement[~mask] = np.nan
    weights = np.asarray(rfgo_token_weights(movement, mask, lambda_w=lambda_w))
    assert (weights[~mask] == 0).all()
    count = mask.sum(axis=1)
    np.testing.assert_allclose(weights.sum(axis=1), count, rtol=2e-6)
    assert (weights[mask] > 0).all()


def test_a_weight_by_hand():
    # Mean 2, std sqrt(2): z is -sqrt 2, 0, sqrt 2, 0 and 1 + z / 2 is 0.29, 1, 1.71, 1,
    # and the first is held at 0.5; the sum is 4.2071, and the scale 4 / 4.2071.
    movement, mask = jnp.float32([[0.0, 2.0, 4.0, 2.0, 9.0]]), jnp.arange(5)[None] < 4
    weights = rfgo_token_weights(movement, mask)
    kept = np.array([0.5, 1.0, 1 + 2**-0.5, 1.0])
    np.testing.assert_allclose(weights[0, :4], kept * 4 / kept.sum(), rtol=1e-6)


def test_a_sequence_that_does_not_move_weighs_its_tokens_alike():
    for size in (0.7, 0.7e7, 0.7e-7):
        movement = size * np.float32([[1, 1, 1, 1, 1, 1 + 1e-6]])
        weights = rfgo_token_weights(movement, np.ones((1, 6), bool), lambda_w=5.0)
        assert (np.asarray(weights) == 1).all()


def test_tokens_without_a_movement_are_neutral_before_scaling():
    movement, mask = jnp.float32([[99.0, 0.0, 2.0]]), jnp.ones((1, 3), bool)
    measured = jnp.array([[False, True, True]])
    weights = rfgo_token_weights(movement, mask, lambda_w=0.25, score_mask=measured)
    np.testing.assert_allclose(weights, [[1.0, 0.75, 1.25]], rtol=1e-6)


# Proxies


def test_the_proxy_touches_groups_without_a_preference_only():
    quality = np.float32([[1, 2, 3], [1, 2, 3], [1, 2, 3]])
    # Sixteen rewards of 0.7 have a std of 6e-8: rounding is not a preference.
    rewards = np.float32([[0, 0, 1], [0.7, 0.7, 0.7], [0, 0, 0]])
    proxies = np.asarray(rfgo_proxy_rewards(quality, rewards, lambda_p=0.1))
    assert (proxies[0] == 0).all()
    unit = 0.1 * np.sqrt(1.5)
    np.testing.assert_allclose(proxies[1], [-unit, 0, unit], rtol=1e-6)
    assert (proxies[2] == proxies[1]).all()


def test_qualities_are_clipped_and_malformed_completions_have_no_say():
    quality = np.float32([[-9, 9, 1, 700]])
    eligible = np.array([[True, True, True, False]])
    found = rfgo_proxy_rewards(
        quality, np.zeros((1, 4), np.float32), clip=2.0, eligible=eligible
    )
    clipped = np.array([-2.0, 2.0, 1.0])
    expected = 0.1 * (clipped - clipped.mean()) / clipped.std()
    np.testing.assert_allclose(found[0, :3], expected, rtol=1e-6)
    assert found[0, 3] == 0


def test_the_size_of_qualities_does_not_matter_and_rounding_is_no_difference():
    zeros = np.zeros((1, 3), np.float32)
    quality = np.float32([[1, 2, 4]])
    unit = np.asarray(rfgo_proxy_rewards(quality, zeros, clip=1e9))
    assert unit[0, 0] < 0 < unit[0, 2]
    for size in (1e-7, 1e7):
        found = rfgo_proxy_rewards(size * quality, zeros, clip=1e9)
        np.testing.assert_allclose(found, unit, rtol=1e-5)
        rounded = size * np.float32([[1, 1 + 1e-6, 1]])
        assert not np.asarray(rfgo_proxy_rewards(rounded, zeros, clip=1e9)).any()


@pytest.mark.parametrize("eligible", [0, 1])
def test_fewer_than_two_sound_completions_earn_nothing(eligible):
    mask = np.arange(4)[None] < eligible
    rewards = np.zeros((1, 4), np.float32)
    quality = np.float32([[1, 2, 3, 4]])
    assert not np.asarray(rfgo_proxy_rewards(quality, rewards, eligible=mask)).any()


def test_lists_and_success_arrays_are_read():
    weights = rfgo_token_weights([[0, 2, 4]], [[1, 1, 0]])
    np.testing.assert_allclose(weights, [[0.5, 1.5, 0]], rtol=1e-6)
    proxies = rfgo_proxy_rewards(
        [[1, 3], [1, 3]], np.array([[True, False], [True] * 2])
    )
    np.testing.assert_allclose(proxies, [[0, 0], [-0.1, 0.1]], rtol=1e-6)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (
            lambda: rfgo_token_weights([1, 2], [1, 1]),
            "token_scores has shape (2,); it must",
        ),
        (lambda: rfgo_token_weights([[1, 2]], [1, 1]), "it must be [B=1, T=2]"),
        (lambda: rfgo_proxy_rewards([1, 2], [1, 1]), "quality has shape (2,); it must"),
        (lambda: rfgo_proxy_rewards([[1, 2]], [[1]]), "it must be [P=1, G=2]"),
        (lambda: rfgo_proxy_rewards([[1, 2]], [[1, np.nan]]), "rewards[0, 1] is nan"),
    ],
)
def test_arrays_of_another_shape_are_refused(refused, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        refused()


# In the update


def _reference(movement, features_of="policy"):
    """Returns weights and advantages in float64, token by token."""
    reader, guide, batch = _reader(), _features(), _batch()
    h = _stream().astype(np.float64)
    pre = (h - reader.center) @ reader.encoder.astype(np.float64) + reader.bias
    f = np.where(pre > reader.threshold, pre, 0.0)
    ref_f = batch.probe_targets.ref_features.astype(np.float64)
    f = ref_f if features_of == "reference" else f
    level = (f / guide.scale) @ guide.weights.astype(np.float64)
    ref_level = (ref_f / guide.scale) @ guide.weights.astype(np.float64)
    weights, quality = np.zeros((P * G, T)), np.zeros(P * G)
    for b, n in enumerate(LENGTHS):
        known = range(n - 1)
        quality[b] = np.mean([level[b, t] for t in known]) if n > 1 else 0.0
        m = {
            "activation": {t: level[b, t] for t in known},
            "ref_diff": {t: level[b, t] - ref_level[b, t] for t in known},
            "temporal_diff": {
                t: (np.abs(f[b, t] - f[b, t - 1]) / guide.scale) @ np.abs(guide.weights)
                for t in known
                if t > 0
            },
        }[movement]
        values = np.array(list(m.values()))
        spread = values.std() if len(values) else 0.0
        w = np.ones(n)
        for t, value in m.items():
            if spread > 0:
                w[t] = np.clip(1 + 0.5 * (value - values.mean()) / spread, 0.5, 2.0)
        weights[b, :n] = w * n / w.sum()
    advantages = ADVANTAGES.astype(np.float64).copy()
    clipped = np.clip(quality, -2, 2)  # some are beyond
    for p in (1, 3):
        rows = [b for b in range(p * G, (p + 1) * G) if LENGTHS[b] > 1]
        q = clipped[rows]
        advantages[rows] = 0.1 * (q - q.mean()) / q.std()
    return weights, advantages


@pytest.mark.parametrize(
    ("movement", "features_of"),
    [
        ("temporal_diff", "policy"),
        ("ref_diff", "policy"),
        ("activation", "policy"),
        ("temporal_diff", "reference"),
        ("activation", "reference"),
    ],
)
def test_the_guided_batch_is_the_written_equations(movement, features_of):
    config = dataclasses.replace(
        STEERING, token_score=movement, features_of=features_of
    )
    batch = _batch()
    found, _ = _apply(batch=batch, config=config)
    weights, advantages = _reference(movement, features_of)
    np.testing.assert_allclose(found.token_weights, weights, rtol=2e-5, atol=1e-9)
    np.testing.assert_array_equal(found.loss_weights, batch.loss_weights)
    np.testing.assert_allclose(found.advantages, advantages, rtol=2e-5, atol=1e-7)


def test_a_completion_of_one_token_earns_no_proxy_and_has_no_say():
    """Rows 4 to 7 have no preference; row 5 has no activation, so no quality."""
    lengths = LENGTHS.copy()
    lengths[5] = 1
    found, _ = _apply(batch=dataclasses.replace(_batch(), lengths=lengths))
    assert found.advantages[5] == 0
    others = np.asarray(found.advantages)[[4, 6, 7]]
    np.testing.assert_allclose((others.mean(), others.std()), (0, 0.1), atol=1e-6)


def test_padding_and_the_last_token_are_never_read():
    stream = _stream().copy()
    outside = np.arange(T - 1)[None] >= LENGTHS[:, None] - 1
    stream[outside] = np.nan
    clean = _apply()
    dirty = _apply(stream)
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)


def test_shuffled_weights_are_the_weights_in_another_order():
    straight, _ = _apply()
    shuffled, _ = _apply(shuffled=True)
    a, b = (np.asarray(x.token_weights) for x in (straight, shuffled))
    np.testing.assert_array_equal(np.sort(a, axis=1), np.sort(b, axis=1))
    assert (a != b).any()


def test_every_completion_is_shuffled_in_an_order_of_its_own():
    """Rows with equal weights get different orders: no two of 40 rows agree."""
    rows, width = 40, 8
    weight = jnp.tile(jnp.arange(1.0, width + 1), (rows, 1))
    found = _shuffle_weights(
        weight,
        jnp.ones((rows, width), bool),
        key=jax.random.key(0),
        row=jnp.arange(rows),
    )
    assert len({tuple(row) for row in np.asarray(found).tolist()}) == rows
    # Cut out of the batch and padded, a row keeps its order.
    alone = _shuffle_weights(
        jnp.pad(weight[7:8], ((0, 0), (0, 3))),
        jnp.arange(width + 3)[None] < width,
        key=jax.random.key(0),
        row=jnp.array([7]),
    )
    np.testing.assert_array_equal(alone[0, :width], found[7])


def test_weights_are_shuffled_among_the_policys_tokens_only():
    """An environment replied in the middle: its tokens neither give nor get weight."""
    mask = jnp.array([[True, True, False, False, True, True, False]] * 20)
    weight = jnp.where(mask, jnp.arange(1.0, 8.0), 0.0)
    found = np.asarray(
        _shuffle_weights(weight, mask, key=jax.random.key(0), row=jnp.arange(20))
    )
    assert (np.sort(found[:, np.asarray(mask[0])]) == [1, 2, 5, 6]).all()
    assert (found[:, ~np.asarray(mask[0])] == 0).all()
    assert (found != np.asarray(weight)).any()


def test_sums_are_counted_once_and_by_band():
    _, sums = _apply(config=dataclasses.replace(STEERING, proxy_clip=1.0))
    tokens = (LENGTHS - 1).reshape(P, G).sum(axis=1)
    by_band = {BANDS[0]: tokens[0], BANDS[1]: tokens[1], BANDS[2]: tokens[3]}
    assert sums.tokens_by_band.tolist() == [by_band.get(band, 0) for band in BANDS]
    f = np.asarray(read_features(_reader(), jnp.asarray(_stream())), np.float64)
    f[np.arange(T - 1)[None] >= LENGTHS[:, None] - 1] = 0
    np.testing.assert_allclose(sums.sum_squares, (f**2).sum(axis=(0, 1)), rtol=1e-5)
    right = np.isin(np.arange(P * G), [0, 8, 10, 12, 13, 14, 15])
    np.testing.assert_allclose(sums.sums_by_outcome[1], f[right].sum((0, 1)), rtol=1e-5)
    assert float(sums.tokens_by_outcome[1]) == (LENGTHS - 1)[right].sum()
    level = np.asarray(feature_activation(jnp.float32(f), _features()), np.float64)
    quality = level.sum(axis=1) / np.maximum(LENGTHS - 1, 1)
    quality = np.clip(quality, -1, 1)
    # Groups 0 and 2 are split; completion 3 has no level, so it does not count.
    q, r = quality[[0, 1, 2]], np.array([1.0, 0, 0])
    q2, r2 = quality[8:12], np.array([1.0, 0, 1, 0])
    assert 1 in q  # the bound
    assert 1 in q2
    moments = np.array(
        [
            [
                ((a - a.mean()) * (b - b.mean())).sum(),
                ((a - a.mean()) ** 2).sum(),
                ((b - b.mean()) ** 2).sum(),
            ]
            for a, b in ((q, r), (q2, r2))
        ]
    )
    assert float(sums.num_informative_groups) == 2
    np.testing.assert_allclose(sums.moments, moments.sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose(sums.moment_products, moments.T @ moments, rtol=1e-4)
    assert float(sums.proxy_groups) == 2
    assert float(sums.num_tokens) == (LENGTHS - 1).sum()


def test_a_probe_without_features_sums_up_nothing_and_changes_nothing():
    features = dataclasses.replace(
        _features(), weights=np.zeros(0, np.float32), scale=np.ones(0, np.float32)
    )
    apply = functools.partial(apply_rfgo, config=RFGOConfig(), shuffle_weights=False)
    found, sums = jax.jit(apply)(jnp.zeros((P * G, T - 1, 0)), _batch(), features)
    assert found.token_weights is None
    np.testing.assert_array_equal(found.advantages, ADVANTAGES)
    assert sums.sums_by_band.shape == (len(BANDS), 0)
    assert float(sums.num_weighted_tokens) == LENGTHS.sum()


def _updater(config, *, shuffled=False, kind=Updater):
    return kind(
        nnx.graphdef(POLICY),
        policy_objective(LossConfig()),
        optimizer=OptimizerConfig(clip_norm=1e9),
        total_steps=10,
        logits_chunk_size=0,
        probe=ProbeSpec(layer=1, rfgo=config, shuffle_weights=shuffled),
    )


def _stepped(updater, parts, guide=None):
    params = jax.tree.map(jnp.copy, nnx.state(POLICY))
    state, losses, _ = updater.step(
        updater.init(params), parts, SamplingParams.unmodified(), probe=guide
    )
    return state, losses


def test_without_lambdas_the_update_is_the_plain_one_bit_for_bit():
    plain, _ = _stepped(
        _updater(RFGOConfig()), [dataclasses.replace(_batch(), probe_targets=None)]
    )
    watched, losses = _stepped(_updater(RFGOConfig()), [_batch()], _inputs())
    assert float(losses.feature_sums.num_weighted_tokens) == LENGTHS.sum()
    jax.tree.map(np.testing.assert_array_equal, plain.params, watched.params)


@pytest.mark.parametrize(
    ("shuffled", "packing"),
    [pytest.param(False, False, marks=pytest.mark.slow), (True, True)],
)
def test_no_cut_into_micro_batches_changes_the_guided_gradient(shuffled, packing):
    """Groups 0 and 3 fit into two and three rows of 9; the others save no rows."""
    updater = _updater(STEERING, shuffled=shuffled)
    whole, one = _stepped(updater, [_batch()], _inputs())
    micro_batch_cut = MicroBatchCut(
        num_groups=2, pad_multiple=T if packing else 1, packing=packing
    )
    parts = list(split_micro_batches(_batch(), micro_batch_cut))
    assert [part.packing is not None for part in parts] == [packing, False]
    cut, many = _stepped(updater, parts, _inputs())
    a, b = (jax.tree.leaves(state.opt_state) for state in (whole, cut))
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=2e-7)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-5),
        one.feature_sums,
        many.feature_sums,
    )


def test_the_reference_policy_is_read_at_its_own_weights_for_each_token():
    """Each micro-batch gets the features of another policy's stream, in its order."""

    class Recorder(Updater):
        def step(self, state, micro_batches, sampling, *, probe=None):
            self.parts = list(micro_batches)
            return super().step(state, self.parts, sampling, probe=probe)

    rfgo = dataclasses.replace(STEERING, features_of="reference")
    train = TrainConfig(
        batch_size=P,
        group_size=G,
        grad_accum_steps=P,
        rfgo=rfgo,
        max_logprob_mismatch=1e9,
        sampling=SamplingConfig(max_new_tokens=T),
    )
    own = jax.tree.map(jnp.copy, nnx.state(POLICY))
    reference = jax.tree.map(lambda x: 0.5 * x, own)
    updater = _updater(rfgo, kind=Recorder)
    targets = dataclasses.replace(_batch().probe_targets, ref_features=None)
    batch = dataclasses.replace(_batch(), probe_targets=targets)
    run_updates(
        Config(
            train=train,
            completion_pad_multiple=1,
            probe=SAEProbeConfig(num_problems=8, num_reference_texts=8),
        ),
        updater,
        updater.init(own),
        batch=batch,
        weight_version=np.int32(0),
        ref_params=reference,
        sampling=SamplingParams.unmodified(),
        to_device=lambda batch: batch,
        probe=_inputs(),
    )
    f_BTR = np.asarray(read_features(_reader(), _stream(scale=0.5)))
    seen = []
    for part in updater.parts:
        for row, found, n in zip(
            part.probe_targets.row,
            part.probe_targets.ref_features,
            part.lengths,
            strict=True,
        ):
            np.testing.assert_allclose(found[: n - 1], f_BTR[row][: n - 1], atol=1e-5)
            assert not found[n - 1 :].any()
            seen.append(row)
    assert sorted(seen) == list(range(P * G))
    for part in updater.parts:
        width = part.probe_targets.ref_features.shape[1]
        assert width == part.tokens.shape[1] == part.lengths.max()
    assert np.abs(f_BTR - np.asarray(read_features(_reader(), _stream()))).max() > 0.1


def test_the_probe_receives_no_gradient_and_passes_none_on():
    """The guided gradient equals the plain one with the guided numbers as data."""
    batch = _batch()
    state, _ = _stepped(_updater(STEERING), [batch], _inputs())
    fixed, _ = _apply(batch=batch)
    fixed = dataclasses.replace(jax.device_get(fixed), probe_targets=None)
    same, _ = _stepped(_updater(STEERING), [fixed])
    for left, right in zip(
        *(jax.tree.leaves(s.opt_state) for s in (state, same)), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=2e-7)

    def loss(encoder):
        guided_batch, _ = _apply(batch=batch, reader=_reader(encoder=encoder))
        return (guided_batch.token_weights**2).sum() + guided_batch.advantages.sum()

    def of_stream(stream):
        guided_batch, _ = _apply(stream, batch=batch)
        return (guided_batch.token_weights**2).sum() + guided_batch.advantages.sum()

    assert not np.asarray(jax.grad(loss)(jnp.asarray(_reader().encoder))).any()
    assert not np.asarray(jax.grad(of_stream)(jnp.asarray(_stream()))).any()


def test_no_sums_is_the_zero_of_their_addition():
    _, sums = _apply()
    jax.tree.map(
        np.testing.assert_array_equal, sums + zero_feature_sums(_features()), sums
    )
