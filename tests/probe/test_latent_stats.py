"""Statistics of all latents in the update equal sae_jax's, by band, on any mesh."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from job_jax.mesh import AXES, batch_sharding, replicated_sharding
from rlvr_jax.probe import latent_stats
from rlvr_jax.probe.feature_selection import FeatureSelection
from rlvr_jax.probe.latent_stats import (
    BAND_ROWS,
    SAEObserver,
    measure_fidelity,
    sum_latents_by_sequence,
    to_feature_table,
)
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.probe.sae_probe import SAEProbe, shard_sae
from rlvr_jax.types import BANDS, Batch, ProbeTargets
from sae_jax.sae import NO_THRESHOLD, TSAE
from sae_jax.stats import quality
from sae_jax.stats.feature_statistics import FeatureTable, RowKey

P, G, T, D, Z = 8, 2, 7, 12, 32
B = P * G
RNG = np.random.default_rng(0)
LENGTHS = np.int32([7, 3, 2, 1, 5, 6, 1, 1, 4, 7, 7, 2, 3, 6, 5, 4])
BANDS_B = np.repeat(np.int32([0, 1, 2, 0, -1, 1, 2, 3]), G)
OUTCOMES = np.int32([0, 1, 2, 1, 0, 0, 1, 1, 2, 0, 1, 0, 1, 1, 0, 2])
STREAM = (3 + RNG.standard_normal((B, T - 1, D))).astype(np.float32)
COUNTED = np.arange(T - 1)[None] < LENGTHS[:, None] - 1
CHOSEN = (5, 0, 31)


@functools.cache
def dictionary(*, threshold=0.4) -> TSAE:
    random = TSAE.init(jax.random.key(1), width=D, latents=Z, group_sizes=(8, 24))
    return dataclasses.replace(
        random,
        encoder_bias=jnp.linspace(-0.5, 0.5, Z),
        decoder_bias=jnp.full(D, 3.0),
        threshold=jnp.full(Z, threshold),
    )


def batch() -> Batch:
    zeros = np.zeros((B, T), np.float32)
    return Batch(
        prompt_tokens=np.zeros((P, 3), np.int32),
        prompt_lengths=np.full(P, 3, np.int32),
        tokens=np.zeros((B, T), np.int32),
        lengths=LENGTHS,
        loss_weights=zeros,
        advantages=np.zeros(B, np.float32),
        old_logprobs=zeros,
        ref_logprobs=zeros,
        bands=BANDS_B,
        probe_targets=ProbeTargets(
            row=np.arange(B, dtype=np.int32),
            outcomes=OUTCOMES,
            proxy_eligible=np.zeros(B, bool),
            ref_features=None,
        ),
    )


TEXTS = ReferenceTexts(
    problem_ids=("p",),
    prompt_tokens=np.zeros((1, 1), np.int32),
    prompt_lengths=np.zeros(1, np.int32),
    tokens=np.zeros((1, 1), np.int32),
    lengths=np.zeros(1, np.int32),
    bands=np.zeros(1, np.int32),
    outcomes=np.zeros(1, np.int32),
)


def probe(tsae: TSAE, mesh: Mesh) -> SAEProbe:
    selection = FeatureSelection(
        latents=CHOSEN,
        weights=(0.5, -0.25, 0.25),
        rms=(1.0, 1.0, 1.0),
        scores=(1.0, 1.0, 1.0),
        effects=(0.0,) * 3,
        effect_errors=(0.0,) * 3,
        q_values=None,
        seed_cosine=None,
        method="list",
        control="none",
        layer=0,
        dead=(),
        num_alive=32,
        num_stable=None,
        num_completions=1,
        halves=None,
    )
    return SAEProbe.of_selection(shard_sae(tsae, mesh), selection)


def mesh_of(shape: tuple[int, int, int]) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * 3)


def observe(tsae: TSAE, stream, batch: Batch):
    return jax.jit(SAEObserver(tsae=tsae).observe)(stream, batch)


def sum_by_sequence(tsae: TSAE, stream, counted):
    """Returns the sums of `sum_latents_by_sequence`, as one program."""
    # A new function for each call, because a program keeps the limit of its trace.
    summed = jax.jit(lambda *arrays: sum_latents_by_sequence(*arrays, outcome=OUTCOMES))
    return summed(tsae, stream, counted)


def close(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        found,
        expected,
    )


@pytest.mark.parametrize("at_once", [1 << 24, 2 * B * Z, 1])
def test_the_statistics_equal_those_of_sae_jax_token_by_token(monkeypatch, at_once):
    """Reads all at once, two tokens at a time, or one; padding holds NaN."""
    monkeypatch.setattr(latent_stats, "_MAX_LATENT_ELEMENTS", at_once)
    tsae = dictionary()
    dirty = np.where(COUNTED[:, :, None], STREAM, np.nan)
    found = observe(tsae, jnp.asarray(dirty), batch())
    f_BTZ = np.asarray(tsae.encode(jnp.asarray(STREAM)), np.float64)
    row_B = np.where(BANDS_B < 0, len(BANDS), BANDS_B)
    for r in range(len(BAND_ROWS)):
        here = COUNTED & (row_B == r)[:, None]
        correct, incorrect = (here & (o == OUTCOMES)[:, None] for o in (1, 0))
        expected = {
            "tokens": here.sum(),
            "tokens_correct": correct.sum(),
            "tokens_incorrect": incorrect.sum(),
            "sum": f_BTZ[here].sum(axis=0),
            "sum_squares": (f_BTZ[here] ** 2).sum(axis=0),
            "nonzero": (f_BTZ[here] > 0).sum(axis=0),
            "max": f_BTZ[here].max(axis=0, initial=0.0),
            "sum_correct": f_BTZ[correct].sum(axis=0),
            "sum_incorrect": f_BTZ[incorrect].sum(axis=0),
        }
        of_row = {name: value[r] for name, value in vars(found.statistics).items()}
        close(of_row, expected)
    assert int(found.statistics.tokens.sum()) == (LENGTHS - 1).sum()
    assert float(found.statistics.nonzero.sum()) > 0


@pytest.mark.parametrize("at_once", [1 << 24, 1])
def test_explained_variance_equals_sae_jaxs(monkeypatch, at_once):
    monkeypatch.setattr(latent_stats, "_MAX_LATENT_ELEMENTS", at_once)
    tsae = dictionary()
    dirty = np.where(COUNTED[:, :, None], STREAM, np.nan)
    found = sum_by_sequence(tsae, dirty, COUNTED)
    whole = found.segment_sum(np.zeros(B, np.int32), 1)
    sums = quality.measure_quality(tsae, jnp.asarray(STREAM), jnp.asarray(COUNTED))
    expected = quality.quality_report(sums, num_high=8)
    np.testing.assert_allclose(
        whole.explained_variance.fve(), expected["fve"], rtol=1e-4
    )
    l0 = float(whole.statistics.nonzero.sum() / whole.statistics.tokens.sum())
    assert l0 == pytest.approx(expected["l0"]["all"])


def test_the_update_decodes_the_first_of_each_group():
    tsae = dictionary()
    found = observe(tsae, jnp.asarray(STREAM), batch())
    first = np.arange(0, B, G)
    alone = quality.measure_quality(tsae, jnp.asarray(STREAM[first]), COUNTED[first])
    total = found.explained_variance.segment_sum(np.zeros(len(BAND_ROWS), np.int32), 1)
    assert float(total.tokens[0]) == (LENGTHS[first] - 1).sum()
    np.testing.assert_allclose(
        total.fve(), quality.quality_report(alone, num_high=8)["fve"], rtol=1e-4
    )


def test_predicting_the_mean_explains_nothing_and_a_copy_everything():
    eye = np.eye(D, dtype=np.float32)
    copy = TSAE(
        encoder=jnp.concatenate([eye, -eye], axis=1),
        encoder_bias=jnp.zeros(2 * D),
        decoder=jnp.concatenate([eye, -eye]),
        decoder_bias=jnp.zeros(D),
        threshold=jnp.full(2 * D, NO_THRESHOLD),
        group_sizes=(2 * D,),
    )
    mean = dataclasses.replace(
        copy,
        decoder_bias=jnp.asarray(STREAM[COUNTED].mean(axis=0)),
        threshold=jnp.full(2 * D, 1e6),
    )
    for tsae, expected in ((copy, 1.0), (mean, 0.0)):
        found = sum_by_sequence(tsae, STREAM, COUNTED)
        total = found.segment_sum(np.zeros(B, np.int32), 1)
        np.testing.assert_allclose(total.explained_variance.fve(), expected, atol=1e-4)


def test_no_tokens_are_the_zero_of_addition_and_leave_no_row(tmp_path):
    """If no completion of a step has two tokens, the step is logged without rows."""
    tsae = dictionary()
    nothing = SAEObserver(tsae=tsae).init()
    found = observe(tsae, jnp.asarray(STREAM), batch())
    jax.tree.map(np.testing.assert_array_equal, found + nothing, found)
    short = dataclasses.replace(batch(), lengths=np.ones(B, np.int32))
    empty = jax.device_get(observe(tsae, jnp.asarray(STREAM), short))
    rows = [RowKey("run", 0, band, "rollout") for band in BAND_ROWS]
    assert (
        measure_fidelity(
            empty, step=0, split="rollout", bands=np.arange(len(BAND_ROWS))
        )
        == []
    )
    written = FeatureTable.concatenate([to_feature_table(empty, rows)])
    written.save(tmp_path / "t.npz")
    assert FeatureTable.load(tmp_path / "t.npz").rows == ()
    kept = to_feature_table(jax.device_get(found), rows)
    assert [row.band for row in kept.rows] == list(BAND_ROWS)


@pytest.mark.parametrize("threshold", [0.4, 0.0, NO_THRESHOLD])
def test_a_guides_columns_are_the_latents_of_the_whole_dictionary(threshold):
    """The dictionary may also have no threshold: a plain ReLU."""
    tsae, mesh = dictionary(threshold=threshold), mesh_of((1, 1, 1))
    with jax.set_mesh(mesh):
        found = probe(tsae, mesh).reader.features(jnp.asarray(STREAM))
    expected = np.asarray(tsae.encode(jnp.asarray(STREAM)))[:, :, list(CHOSEN)]
    assert (expected > 0).any()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(found) > 0, expected > 0)


@pytest.mark.parametrize("shape", [(8, 1, 1), (2, 2, 2), (1, 2, 4)], ids=str)
def test_features_are_the_same_on_every_mesh(shape):
    """Reasoning features and the statistics of all latents agree to 1e-5."""

    def on(shape):
        mesh = mesh_of(shape)
        with jax.set_mesh(mesh):
            opened = probe(dictionary(), mesh)
            reader = jax.device_put(opened.reader, replicated_sharding(mesh))
            stream, told = jax.device_put((STREAM, batch()), batch_sharding(mesh))
            found = (
                jax.jit(lambda reader, x: reader.features(x))(reader, stream),
                jax.jit(lambda observer, *args: observer.observe(*args))(
                    opened.observer, stream, told
                ),
            )
            if shape[2] > 1:
                lies = opened.tsae.encoder.sharding
                assert lies.shard_shape((D, Z)) == (D, Z // shape[2])
        return jax.device_get(found)

    close(on(shape), on((1, 1, 1)))


def test_texts_come_back_as_they_were_written(tmp_path):
    TEXTS.save(tmp_path / "texts.npz")
    again = ReferenceTexts.load(tmp_path / "texts.npz")
    assert again.problem_ids == TEXTS.problem_ids
    jax.tree.map(np.testing.assert_array_equal, again, TEXTS)
