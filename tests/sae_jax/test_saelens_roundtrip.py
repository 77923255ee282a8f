"""SAELens opens our export and computes the same, and we open its files.

    pip install -e '.[test,saelens]' && pytest -m live
    tests/sae_jax/test_saelens_roundtrip.py

Two libraries may add up the terms of a matrix product in another order, and then differ
in the last bit. So equality bit for bit is tested where every order gives the same
sum: weights and inputs are small multiples of 1/4, and float32 holds their products and
sums exactly. With random numbers the two must agree to 1e-6 of the largest value.
"""

import warnings

import numpy as np
import pytest

from sae_jax.io import load, load_record, save
from sae_jax.sae import TSAE

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    sae_lens = pytest.importorskip("sae_lens", reason="needs the extra saelens")
    import torch

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore")]

WIDTH, GROUPS, TOKENS = 32, (13, 51), 48
METADATA = {
    "model_name": "quickstart",
    "hook_name": "blocks.2.hook_resid_post",
    "context_size": 128,
    "k": 8,
    "l0": 7.5,
    "data_hash": "ab12",
}


def quarters(rng, *shape):
    return (rng.integers(-8, 9, shape) / 4).astype(np.float32)


def normals(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def example(draw, top_k=None):
    rng = np.random.default_rng(0)
    latents = sum(GROUPS)
    tsae = TSAE(
        encoder=draw(rng, WIDTH, latents),
        encoder_bias=draw(rng, latents),
        decoder=draw(rng, latents, WIDTH),
        decoder_bias=draw(rng, WIDTH),
        threshold=np.abs(draw(rng, latents)) * 4,
        group_sizes=GROUPS,
        top_k=top_k,
    )
    return tsae, draw(rng, TOKENS, WIDTH)


def of_saelens(path, x):
    sae = sae_lens.SAE.load_from_disk(str(path))
    with torch.no_grad():
        f = sae.encode(torch.from_numpy(x))
        return sae, f.numpy(), sae.decode(f).numpy()


def test_exact_sums_agree_bit_for_bit(tmp_path):
    tsae, x = example(quarters)
    save(tmp_path, tsae, metadata=METADATA)
    sae, f, reconstruction = of_saelens(tmp_path, x)
    assert 0.05 < (f > 0).mean() < 0.95
    assert type(sae).__name__ == "JumpReLUSAE"
    np.testing.assert_array_equal(np.asarray(tsae.encode(x)), f)
    np.testing.assert_array_equal(np.asarray(tsae.decode(f)), reconstruction)


def test_random_sums_agree_to_rounding(tmp_path):
    tsae, x = example(normals)
    save(tmp_path, tsae, metadata=METADATA)
    _, f, reconstruction = of_saelens(tmp_path, x)
    ours = np.asarray(tsae.encode(x))
    np.testing.assert_allclose(ours, f, rtol=0, atol=1e-6 * f.max())
    np.testing.assert_allclose(
        np.asarray(tsae.decode(f)),
        reconstruction,
        rtol=0,
        atol=1e-6 * np.abs(reconstruction).max(),
    )


def test_a_dictionary_that_keeps_k_is_theirs_too(tmp_path):
    tsae, x = example(normals, top_k=5)
    save(tmp_path, tsae)
    sae, f, _ = of_saelens(tmp_path, x)
    assert type(sae).__name__ == "TopKSAE"
    ours = np.asarray(tsae.encode(x))
    assert ((ours > 0).sum(axis=1) == 5).all()
    np.testing.assert_allclose(ours, f, rtol=0, atol=1e-6 * f.max())


def test_tensors_and_metadata_arrive_whole(tmp_path):
    tsae, x = example(normals)
    save(tmp_path, tsae, metadata=METADATA)
    sae, *_ = of_saelens(tmp_path, x)
    for theirs, ours in (
        (sae.W_enc, tsae.encoder),
        (sae.b_enc, tsae.encoder_bias),
        (sae.W_dec, tsae.decoder),
        (sae.b_dec, tsae.decoder_bias),
        (sae.threshold, tsae.threshold),
    ):
        np.testing.assert_array_equal(theirs.detach().numpy(), ours)
    for name, value in METADATA.items():
        assert sae.cfg.metadata[name] == value
    assert sae.cfg.metadata["group_sizes"] == list(GROUPS)


def test_what_saelens_saves_again_comes_back_bit_for_bit(tmp_path):
    tsae, x = example(normals)
    save(tmp_path / "ours", tsae, metadata=METADATA)
    sae, *_ = of_saelens(tmp_path / "ours", x)
    sae.save_model(str(tmp_path / "theirs"))
    back = load(tmp_path / "theirs")
    assert back.group_sizes == GROUPS
    for name in ("encoder", "encoder_bias", "decoder", "decoder_bias", "threshold"):
        np.testing.assert_array_equal(vars(back)[name], vars(tsae)[name])
    assert load_record(tmp_path / "theirs").metadata["data_hash"] == "ab12"
