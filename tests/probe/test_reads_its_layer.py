"""The probe `sae` reads texts at the layer that it was fitted to."""

import types

import pytest

from rlvr_jax.probe import sae_probe
from rlvr_jax.probe.sae_probe import SAEProbe
from rlvr_jax.probe.weight_noise import noise_file

LAYER = 3


@pytest.fixture
def probe():
    return SAEProbe(
        layer=LAYER, feature_names=(), weights=(), rms=(), reader=None, tsae="sae"
    )


def test_a_probe_reads_texts_at_its_own_layer(probe, monkeypatch):
    monkeypatch.setattr(
        sae_probe, "read_reference_texts", lambda *given, layer: (given, layer)
    )
    found = probe.read_texts("graphdef", "params", "texts")
    assert found == (("graphdef", "params", "sae", "texts"), LAYER)


def test_a_probe_reads_noise_at_its_own_layer(probe, monkeypatch, tmp_path):
    asked, saved = [], []

    def read(*given, layer, key):
        asked.append((given, layer, key))
        return types.SimpleNamespace(save=saved.append)

    monkeypatch.setattr(sae_probe, "read_under_noise", read)
    probe.write_noise(
        tmp_path,
        "graphdef",
        before="sft",
        after="train",
        texts="texts",
        step=5,
        key="key",
    )
    given = ("graphdef", "sft", "train", "sae", "texts")
    assert asked == [(given, LAYER, "key")]
    assert saved == [noise_file(tmp_path, 5)]
