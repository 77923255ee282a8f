"""The probe `sae` is fitted with the layer and the seed of its run."""

import types

import pytest

from rlvr_jax.config import Config
from rlvr_jax.probe import sae
from rlvr_jax.probe.sae import SAEProbeConfig

LAYER, SEED = 3, 7


@pytest.fixture
def fit(tmp_path, monkeypatch):
    """Returns the summary of a fit, and what each stand-in of its parts was told."""
    told = {}

    def open_source(pairs, *, seed, mesh):
        told["source"] = (pairs.path, seed)
        return "source", "metadata"

    def train(job, source, **settings):
        told["train"] = (job.seed, source, settings["metadata"])

    def select(features, tsae, corpus, **settings):
        told["select"] = settings
        return types.SimpleNamespace(summary=lambda: "summary")

    monkeypatch.setattr(sae.train, "open_source", open_source)
    monkeypatch.setattr(sae.train, "train", train)
    monkeypatch.setattr(sae.io, "load", lambda p: types.SimpleNamespace(decoder=p.name))
    monkeypatch.setattr(sae, "seed_cosine", lambda first, others: (first, others))
    monkeypatch.setattr(sae, "select_features", select)
    monkeypatch.setattr(sae, "is_primary", lambda: False)
    inputs = types.SimpleNamespace(
        config=Config(seed=SEED),
        mesh="mesh",
        corpus="corpus",
        activations=tmp_path / "activations",
        tokenize="tokenize",
        workdir=types.SimpleNamespace(path=tmp_path, read_summary=dict),
        writer="writer",
        stop_signal="stop",
    )
    return SAEProbeConfig(layer=LAYER).fit(inputs), told, inputs


def test_features_are_selected_at_the_probes_layer_by_the_runs_seed(fit):
    summary, told, _ = fit
    assert summary == "summary"
    assert told["select"] == {
        "layer": LAYER,
        "seed_cosine": ("sae", [f"seed{SEED + 1}"]),
        "tokenize": "tokenize",
        "seed": SEED,
    }


def test_the_autoencoder_and_its_pairs_have_the_runs_seed(fit):
    _, told, inputs = fit
    assert told["source"] == (str(inputs.activations), SEED)
    assert told["train"] == (SEED, "source", "metadata")


def test_an_autoencoder_from_elsewhere_must_be_of_the_probes_layer(monkeypatch):
    told = {}

    def load(path, config, *, layer, model_name):
        told.update(path=path, layer=layer, model_name=model_name)

    monkeypatch.setattr(sae, "load_external_sae", load)
    config = Config(name="run")
    SAEProbeConfig(layer=LAYER, sae_path="theirs")._load_external(config)
    assert told == {"path": "theirs", "layer": LAYER, "model_name": "run"}
    named = SAEProbeConfig(layer=LAYER, sae_path="theirs", sae_model_name="model")
    named._load_external(config)
    assert told["model_name"] == "model"
