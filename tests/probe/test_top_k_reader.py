"""Reading chosen latents alone equals reading them from the whole dictionary."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.probe import sae_probe
from rlvr_jax.probe.abstract_sae import external_shapes
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.probe.sae_probe import LatentReader, TopKReader, make_reader
from rlvr_jax.probe.selection import FeatureSelection
from sae_jax import io
from sae_jax.sae import TSAE

B, T, D, Z, K = 3, 7, 6, 40, 4
LATENTS = (39, 0, 5, 17)


def whole_numbers(rng, *shape):
    """Returns whole numbers: their sums are exact, and many are tied."""
    return rng.integers(-2, 3, shape).astype(np.float32)


def normals(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def dictionary(draw, *, threshold=0.0, top_k=K):
    rng = np.random.default_rng(0)
    tsae = TSAE(
        encoder=draw(rng, D, Z),
        encoder_bias=draw(rng, Z),
        decoder=draw(rng, Z, D),
        decoder_bias=draw(rng, D),
        threshold=np.full(Z, threshold, np.float32),
        group_sizes=(Z,),
        top_k=top_k,
    )
    return tsae, draw(rng, B, T, D)


@pytest.mark.parametrize("draw", [normals, whole_numbers])
@pytest.mark.parametrize("threshold", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize("elements", [1, 2 * B * Z, 3 * B * Z, B * T * Z, 1 << 26])
def test_the_chosen_latents_equal_those_from_the_whole(
    monkeypatch, draw, threshold, elements
):
    monkeypatch.setattr(sae_probe, "_MAX_TOP_K_ELEMENTS", elements)
    tsae, x = dictionary(draw, threshold=threshold)
    f = np.asarray(jax.jit(TopKReader.of_latents(tsae, LATENTS).features)(x))
    whole = np.asarray(tsae.encode(x))
    np.testing.assert_allclose(f, whole[..., LATENTS], rtol=1e-6)
    plain = np.asarray(dataclasses.replace(tsae, top_k=None).encode(x))
    assert (f != plain[..., LATENTS]).any()  # k decides
    assert (f > 0).any()
    if draw is whole_numbers:
        assert ((whole > 0).sum(axis=-1) > K).any()  # with ties more than k are kept


@pytest.mark.parametrize("k", [1, Z])
def test_the_largest_alone_and_all(k):
    tsae, x = dictionary(normals, top_k=k)
    f = TopKReader.of_latents(tsae, range(Z)).features(jnp.asarray(x))
    np.testing.assert_allclose(f, tsae.encode(x), rtol=1e-6)
    assert (np.asarray(f) > 0).sum(axis=-1).max() <= k


def selection(**changes):
    ones = (1.0,) * len(LATENTS)
    made = FeatureSelection(
        latents=LATENTS,
        weights=ones,
        rms=ones,
        scores=ones,
        effects=ones,
        effect_errors=ones,
        q_values=None,
        seed_cosine=None,
        method="list",
        control="none",
        layer=0,
        dead=(),
        num_alive=Z,
        num_stable=None,
        num_completions=1,
        halves=None,
    )
    return dataclasses.replace(made, **changes)


def test_a_selection_is_read_by_what_its_dictionary_needs():
    top_k, _ = dictionary(normals)
    threshold, _ = dictionary(normals, top_k=None)
    assert isinstance(make_reader(top_k, selection()), TopKReader)
    assert isinstance(make_reader(threshold, selection()), LatentReader)
    raw = selection(directions=((1.0,) * D,), center=(0.0,) * D)
    assert isinstance(make_reader(top_k, raw), LatentReader)
    with pytest.raises(ValueError, match="reads an autoencoder with top_k"):
        TopKReader.of_latents(threshold, LATENTS)


def test_a_run_is_planned_by_the_file_that_is_there(tmp_path):
    """The update holds all 256 MB of a published encoder, but not its 16 columns."""
    tsae, _ = dictionary(normals)
    path = str(tmp_path / "sae")
    config = SAEProbeConfig(sae_path=path)
    reader, num_features = config.abstract_reader(D)
    assert external_shapes(path) is None
    assert isinstance(reader, LatentReader)
    assert config.memory_bytes(D) == 0
    io.save(path, tsae)
    reader, again = config.abstract_reader(D)
    assert num_features == again == config.features.num_features
    assert (reader.encoder.shape, reader.k) == ((D, Z), K)
    assert reader.latents.shape == (num_features,)
    assert config.memory_bytes(D) == 2 * 4 * D * Z
