"""Saved dictionaries are read back bit for bit, in a layout that SAELens opens."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from sae_jax.formats.record import FormatError
from sae_jax.io import load, load_record, save
from sae_jax.sae import TSAE

WIDTH, GROUPS = 5, (2, 6)


def random_tsae(seed: int = 0, top_k: int | None = None) -> TSAE:
    keys = jax.random.split(jax.random.key(seed), 5)
    return TSAE(
        encoder=jax.random.normal(keys[0], (WIDTH, sum(GROUPS))),
        encoder_bias=jax.random.normal(keys[1], (sum(GROUPS),)),
        decoder=jax.random.normal(keys[2], (sum(GROUPS), WIDTH)),
        decoder_bias=jax.random.normal(keys[3], (WIDTH,)),
        threshold=jax.random.uniform(keys[4], (sum(GROUPS),)),
        group_sizes=GROUPS,
        top_k=top_k,
    )


@pytest.mark.parametrize("top_k", [None, 3])
def test_load_returns_what_save_was_given_bit_for_bit(tmp_path, top_k):
    saved = random_tsae(top_k=top_k)
    save(tmp_path / "sae", saved)
    loaded = load(tmp_path / "sae")
    for name in ("encoder", "encoder_bias", "decoder", "decoder_bias"):
        np.testing.assert_array_equal(vars(loaded)[name], vars(saved)[name])
    assert loaded.group_sizes == GROUPS
    assert loaded.top_k == top_k
    expected = saved.threshold if top_k is None else jnp.zeros(8)
    np.testing.assert_array_equal(loaded.threshold, expected)


def test_a_seed_is_a_key():
    ours, theirs = (
        TSAE.init(key, width=2, latents=3) for key in (np.int64(7), jax.random.key(7))
    )
    np.testing.assert_array_equal(ours.decoder, theirs.decoder)


def test_the_other_order_and_another_width_are_reported(tmp_path):
    tsae = random_tsae()
    with pytest.raises(
        TypeError, match="TSAE and a PosixPath; give the directory first"
    ):
        save(tsae, tmp_path)
    with pytest.raises(ValueError, match=r"latents \(3, 5\) do not fit .* of 8 rows"):
        tsae.decode(np.ones((3, 5), np.float32))


def test_the_files_are_those_that_saelens_demands(tmp_path):
    tsae = random_tsae()
    save(tmp_path, tsae, metadata={"model_name": "m", "k": 3, "data_hash": "ab"})
    config = json.loads((tmp_path / "cfg.json").read_text())
    assert config["architecture"] == "jumprelu"
    assert (config["d_in"], config["d_sae"], config["dtype"]) == (5, 8, "float32")
    assert config["apply_b_dec_to_input"] is True
    assert config["normalize_activations"] == config["reshape_activations"] == "none"
    metadata = config["metadata"]
    assert int(metadata["sae_lens_version"].split(".")[0]) >= 6
    assert metadata["group_sizes"] == [2, 6]
    assert (metadata["model_name"], metadata["k"]) == ("m", 3)
    tensors = load_file(tmp_path / "sae_weights.safetensors")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    assert shapes == {
        "W_enc": (5, 8),
        "b_enc": (8,),
        "W_dec": (8, 5),
        "b_dec": (5,),
        "threshold": (8,),
    }
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}
    assert not (tmp_path / "sparsity.safetensors").exists()


def test_the_sparsity_is_the_decimal_logarithm_of_the_firing_rate(tmp_path):
    rate = np.array([0.0, 1e-3, 0.1, 1.0, 0.01, 0.01, 0.01, 0.01])
    save(tmp_path, random_tsae(), firing_rate=rate)
    sparsity = load_file(tmp_path / "sparsity.safetensors")["sparsity"]
    np.testing.assert_allclose(sparsity, [-10, -3, -1, 0, -2, -2, -2, -2], rtol=1e-6)


def test_read_returns_metadata_and_format(tmp_path):
    save(tmp_path, random_tsae(), metadata={"hook_name": "blocks.2.hook_resid_post"})
    record = load_record(tmp_path)
    assert record.format == "saelens"
    assert record.metadata["hook_name"] == "blocks.2.hook_resid_post"


def test_a_directory_without_an_autoencoder_is_described(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FormatError, match=r"it holds \['notes.txt'\], none of sae_wei"):
        load(tmp_path)
    with pytest.raises(FormatError, match="there is no such directory"):
        load(tmp_path / "nowhere")
