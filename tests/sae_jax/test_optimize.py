"""Optimizer steps: invariances, replicas, meshes, and the trainer's output."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.mesh import make_mesh
from job_jax.schema import ConfigError
from sae_jax.calibrate import calibrate_threshold
from sae_jax.config import (
    Config,
    LossConfig,
    MeshConfig,
    OptimizerConfig,
    PairsConfig,
    SAEConfig,
    TrainConfig,
)
from sae_jax.data.tokens import Documents
from sae_jax.losses import tsae_loss
from sae_jax.optimize import (
    geometric_median,
    inference_dictionaries,
    init_state,
    learning_rate_schedule,
    replicas,
    train_step,
)
from sae_jax.types import Pairs

RNG = np.random.default_rng(0)
ROWS, WIDTH = 32, 8
CONFIG = Config(
    sae=SAEConfig(latents=32, k=4, group_fractions=(0.25, 0.75), topk_tolerance=0.0),
    loss=LossConfig(dead_after_tokens=80),
    optimizer=OptimizerConfig(learning_rate=0.01, warmup_steps=0),
    pairs=PairsConfig(batch_size=ROWS),
    train=TrainConfig(steps=10, threshold_start_step=1, threshold_decay=0.5),
)


def batches(count: int, *, scale: float = 1.0) -> list[Pairs]:
    x = RNG.standard_normal((count, ROWS, WIDTH)) + np.arange(WIDTH)
    positive = x + 0.3 * RNG.standard_normal(x.shape)
    return [
        Pairs(
            x=jnp.asarray(scale * a, jnp.float32),
            positive=jnp.asarray(scale * b, jnp.float32),
            valid=jnp.ones(ROWS, bool),
        )
        for a, b in zip(x, positive, strict=True)
    ]


DATA = batches(4)


def trained(config: Config, data: list[Pairs] = DATA):
    state = init_state(data[0], config=config)
    for batch in data:
        state, report = train_step(state, batch, config=config)
    return state, report


@pytest.fixture(scope="module")
def plain():
    return trained(CONFIG)


def same(ours, theirs, **tolerance) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def test_eight_devices_step_as_one_does(plain):
    """The batch is split over data x fsdp, latents over tensor, width over fsdp."""
    state, report = plain
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        sharded, found = trained(CONFIG)
    assert len(sharded.tsae.encoder.sharding.device_set) == 8
    assert sharded.tsae.encoder.addressable_shards[0].data.shape == (2, 4, 16)
    same(sharded.tsae, state.tsae, rtol=1e-5, atol=1e-5)
    same(sharded.tokens_since_fired, state.tokens_since_fired)
    same(found, report, rtol=1e-4, atol=1e-5)


def test_a_baseline_starts_alike_and_is_a_run_without_contrast(plain):
    state = init_state(DATA[0], config=CONFIG)
    same(state.tsae.replica(0), state.tsae.replica(1))
    assert [replica.name for replica in replicas(CONFIG)] == [
        "seed0",
        "seed0_no_contrast",
    ]
    alone = dataclasses.replace(
        CONFIG, loss=dataclasses.replace(CONFIG.loss, alpha=0.0)
    )
    assert [replica.name for replica in replicas(alone)] == ["seed0_no_contrast"]
    without, _ = trained(alone)
    both, _ = plain
    same(both.tsae.replica(1), without.tsae.replica(0), rtol=1e-5, atol=1e-6)
    assert (
        np.abs(both.tsae.replica(0).encoder - both.tsae.replica(1).encoder).max() > 1e-3
    )


def test_seeds_differ_and_do_not_disturb_each_other(plain):
    train = dataclasses.replace(CONFIG.train, num_seeds=2)
    several, _ = trained(dataclasses.replace(CONFIG, train=train))
    one, _ = plain
    assert several.tsae.encoder.shape == (4, WIDTH, 32)
    same(several.tsae.replica(0), one.tsae.replica(0), rtol=1e-5, atol=1e-6)
    assert np.abs(several.tsae.encoder[0] - several.tsae.encoder[2]).max() > 0.1


def test_rows_stay_unit_and_the_threshold_follows_the_smallest_kept(plain):
    state, report = plain
    norms = np.linalg.norm(state.tsae.decoder, axis=-1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-6)
    thresholds = np.asarray(state.tsae.threshold)
    assert np.all(thresholds > 0)
    assert np.all(thresholds == thresholds[:, :1])
    np.testing.assert_array_equal(report.threshold, thresholds[:, 0])
    np.testing.assert_allclose(report.l0, 4.0)
    early, _ = trained(CONFIG, DATA[:2])
    assert np.all(early.tsae.threshold == -1.0)  # steps 0 and 1 do not set it


def test_steps_are_adams_on_gradients_projected_and_then_clipped():
    """Three steps in NumPy, from the gradients of the loss. Nothing is normalized.

    The second batch brings the count to 64 tokens, so latents can be dead from then on.
    Step 0 does not set the threshold, step 1 sets it to the smallest activation kept,
    and step 2 moves it half of the way to its own.
    """
    adam = OptimizerConfig(
        learning_rate=0.01,
        b1=0.8,
        b2=0.95,
        eps=1e-3,
        clip_norm=0.01,
        warmup_steps=0,
        lr_decay_fraction=0.0,
    )
    config = dataclasses.replace(
        CONFIG,
        seed=3,
        sae=dataclasses.replace(CONFIG.sae, normalize=False, k=1),
        loss=dataclasses.replace(CONFIG.loss, alpha=0.0, dead_after_tokens=64),
        optimizer=adam,
        train=dataclasses.replace(CONFIG.train, threshold_start_step=0),
    )
    assert [replica.name for replica in replicas(config)] == ["seed3_no_contrast"]
    gradient = jax.jit(
        lambda tsae, batch, counts: jax.grad(tsae_loss, has_aux=True)(
            tsae, batch, counts, sae=config.sae, config=config.loss, alpha=0.0
        )
    )
    state, threshold = init_state(DATA[0], config=config), -1.0
    assert state.scale == 1.0
    names = ("encoder", "encoder_bias", "decoder", "decoder_bias")
    first, second = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for step, batch in enumerate(DATA[:3], start=1):
        tsae = jax.tree.map(jnp.copy, state.tsae.replica(0))
        grads, parts = gradient(tsae, batch, state.tokens_since_fired[0])
        g = {name: np.array(getattr(grads, name), np.float64) for name in names}
        along = (g["decoder"] * tsae.decoder).sum(axis=1, keepdims=True)
        g["decoder"] -= along * np.asarray(tsae.decoder)
        norm = np.sqrt(sum((x**2).sum() for x in g.values()))
        state, report = train_step(state, batch, config=config)
        for name in names:
            clipped = g[name] * adam.clip_norm / norm
            first[name] = 0.8 * first[name] + 0.2 * clipped
            second[name] = 0.95 * second[name] + 0.05 * clipped**2
            mean, square = (
                first[name] / (1 - 0.8**step),
                second[name] / (1 - 0.95**step),
            )
            new = getattr(tsae, name) - 0.01 * mean / (np.sqrt(square) + 1e-3)
            if name == "decoder":
                new /= np.linalg.norm(new, axis=1, keepdims=True)
            found = getattr(state.tsae, name)[0]
            np.testing.assert_allclose(found, new, rtol=0, atol=2e-6, err_msg=name)
        if step > 1:
            old = threshold if threshold > 0 else parts.min_kept
            threshold = 0.5 * old + 0.5 * parts.min_kept
        np.testing.assert_allclose(state.tsae.threshold[0], threshold, rtol=1e-5)
        np.testing.assert_allclose(report.grad_norm, [norm], rtol=1e-4)
        fve = 1 - parts.reconstruction / parts.variance
        np.testing.assert_allclose(report.fve_high, fve[:1], rtol=1e-5)
        np.testing.assert_allclose(report.fve, fve[1:], rtol=1e-5)
        assert (report.dead[0] > 0) == (report.auxk[0] > 0) == (step > 1)


def test_normalization_makes_units_irrelevant(plain):
    """Activations 1000 times as large train the same; the export undoes the scale."""
    state, _ = plain
    large = [
        dataclasses.replace(b, x=1000 * b.x, positive=1000 * b.positive) for b in DATA
    ]
    scaled, _ = trained(CONFIG, large)
    same(scaled.tsae, state.tsae, rtol=1e-3, atol=1e-4)
    x = DATA[0].x
    ours = inference_dictionaries(state).replica(0)
    normalized = state.tsae.replica(0)
    np.testing.assert_allclose(
        ours.encode(x), normalized.encode(state.scale * x) / state.scale, atol=1e-3
    )
    np.testing.assert_allclose(
        ours.decode(ours.encode(x)),
        normalized.decode(normalized.encode(state.scale * x)) / state.scale,
        rtol=1e-3,
        atol=1e-3,
    )


def test_bfloat16_matmuls_leave_state_and_statistics_in_float32(plain):
    train = dataclasses.replace(CONFIG.train, compute_dtype="bfloat16")
    state, report = trained(dataclasses.replace(CONFIG, train=train))
    assert all(leaf.dtype != jnp.bfloat16 for leaf in jax.tree.leaves(state))
    np.testing.assert_allclose(report.fve, plain[1].fve, atol=0.1)


def test_calibration_finds_k_latents_a_token(plain):
    tsae = inference_dictionaries(plain[0]).replica(0).to_host()
    x = RNG.standard_normal((3, 40, 50, WIDTH)).astype(np.float32) + np.arange(
        WIDTH, dtype=np.float32
    )
    counted = RNG.random((3, 40, 50)) < 0.7
    blocks = [
        Documents(
            x=np.where(c[..., None], a, np.nan),
            mask=c,
            token_index=np.zeros(c.shape, int),
        )
        for a, c in zip(x, counted, strict=True)
    ]
    found = calibrate_threshold(tsae, blocks, k=4)
    active = np.asarray(found.encode(x) > 0).sum(axis=-1)[counted]
    np.testing.assert_allclose(active.mean(), 4.0, rtol=2e-3)
    with pytest.raises(ValueError, match="no token"):
        calibrate_threshold(
            tsae, [dataclasses.replace(blocks[0], mask=counted[0] & False)], k=4
        )


def test_schedule_on_paper():
    train = dataclasses.replace(CONFIG.train, steps=100)
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=10, lr_decay_fraction=0.2)
    rate = learning_rate_schedule(config, train)
    rates = {0: 0.0, 5: 0.5, 10: 1.0, 79: 1.0, 80: 1.0, 90: 0.5, 99: 0.05}
    assert {n: round(float(rate(n)), 6) for n in rates} == rates
    level = learning_rate_schedule(
        dataclasses.replace(config, lr_decay_fraction=0.0), train
    )
    assert float(level(99)) == 1.0


def test_geometric_median_ignores_a_far_point_and_padding():
    points = jnp.array([[0.0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5], [1e6, 1e6]])
    median = geometric_median(points, jnp.ones(6, bool))
    assert np.abs(median - 0.5).max() < 0.5
    valid = jnp.arange(6) < 5
    np.testing.assert_allclose(geometric_median(points, valid), 0.5, atol=1e-4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SAEConfig(latents=8, k=9), "k=9 asks for more active latents"),
        (lambda: SAEConfig(group_fractions=(0.2, 0.7)), "add up to 0.9"),
        (lambda: SAEConfig(latents=4, k=1, group_fractions=(0.1, 0.9)), "empty"),
        (lambda: LossConfig(group_weights=(1.0, 0.0)), "the last"),
        (lambda: LossConfig(temperature=0.0), "must be positive"),
        (
            lambda: Config(sae=SAEConfig(group_fractions=(1.0,))),
            "give one weight a group",
        ),
        (lambda: Config(pairs=PairsConfig(batch_size=600)), "does not split"),
        (lambda: Config(optimizer=OptimizerConfig(warmup_steps=9000)), "overlap"),
        (lambda: TrainConfig(steps=1000), "threshold_start"),
    ],
)
def test_a_config_that_cannot_train_is_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()
