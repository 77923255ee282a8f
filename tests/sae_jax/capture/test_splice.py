"""The cost of reading reconstructions to a model: by NumPy, and in known cases."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import scipy.special

from sae_jax import io
from sae_jax.collect import main as collect
from sae_jax.data.shards import ActivationShards
from sae_jax.evaluate import main
from sae_jax.sae import TSAE
from tests.support.checkpoints import write_checkpoint

D = 16
TEXTS = [f"What is {i} plus {i * i % 17}? It is {i + i * i % 17}." for i in range(12)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("splice")
    write_checkpoint(root / "model", num_layers=2)
    rows = [json.dumps({"text": text}) for text in TEXTS]
    (root / "text.jsonl").write_text("\n".join(rows))
    for hook in ("resid_post", "mlp_out"):
        flags = {
            "model": root / "model",
            "text": root / "text.jsonl",
            "layers": "0,1",
            "hook": hook,
            "out": root / hook,
            "dtype": "float32",
        }
        assert collect([f"--{name}={value}" for name, value in flags.items()]) == 0
    return root


def mirror() -> TSAE:
    """Returns a dictionary that reconstructs everything: relu(x) - relu(-x)."""
    both = np.concatenate([np.eye(D), -np.eye(D)]).astype(np.float32)
    tsae = TSAE.init(0, width=D, latents=2 * D)
    return dataclasses.replace(
        tsae, encoder=jnp.asarray(both.T), decoder=jnp.asarray(both)
    )


def blind(mean_D) -> TSAE:
    """Returns a dictionary that gives the same output for every token."""
    tsae = TSAE.init(0, width=D, latents=8)
    return dataclasses.replace(
        tsae,
        decoder=jnp.zeros((8, D)),
        decoder_bias=jnp.asarray(mean_D, jnp.float32),
    )


def some() -> TSAE:
    tsae = TSAE.init(5, width=D, latents=24)
    return dataclasses.replace(tsae, threshold=jnp.full(24, 0.4, jnp.float32))


def measured(place, tsae, capsys, *, layer=0, hook="resid_post", **flags):
    io.save(place / "sae", tsae)
    flags = {
        "sae": place / "sae",
        "activations": place / hook / f"layer_{layer}",
        "model": place / "model",
        **flags,
    }
    capsys.readouterr()
    code = main([f"--{name}={value}" for name, value in flags.items()])
    out, err = capsys.readouterr()
    return json.loads(out)["splice"] if code == 0 else (code, err)


def mean_stream(place, layer):
    shards = ActivationShards(place / "resid_post" / f"layer_{layer}")
    counted = np.flatnonzero(shards.column("special") == 0)
    return shards.rows(counted).mean(axis=0)


def test_a_perfect_dictionary_loses_nothing_and_a_blind_one_all(place, capsys):
    whole = measured(place, mirror(), capsys)
    assert whole["cross_entropy_recovered"]["mean"] == pytest.approx(1, abs=1e-4)
    assert whole["kl"]["spliced"]["mean"] == pytest.approx(0, abs=1e-6)
    assert whole["kl"]["mean_ablated"]["mean"] > 1e-3
    sequence_N = ActivationShards(place / "resid_post" / "layer_0").column("sequence")
    # nothing predicts a first token
    assert whole["tokens"] == len(sequence_N) - len(TEXTS)
    assert whole["problems"] == len(TEXTS)
    nothing = measured(place, blind(mean_stream(place, 0)), capsys)
    assert nothing["cross_entropy_recovered"]["mean"] == pytest.approx(0, abs=1e-3)
    assert nothing["kl_recovered"]["mean"] == pytest.approx(0, abs=1e-3)


def test_figures_equal_a_float64_reference(place, capsys):
    """After the last layer there are only a norm and a head, which NumPy computes."""
    tsae, found = some(), measured(place, some(), capsys, layer=1)
    weights = safetensors.numpy.load_file(place / "model" / "model.safetensors")
    config = json.loads((place / "model" / "config.json").read_text())
    head_VD = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    shards = ActivationShards(place / "resid_post" / "layer_1")
    sequence_N, id_N = shards.column("sequence"), shards.column("token_id")
    x_ND = shards.rows(np.arange(len(id_N)))
    arms = (x_ND, tsae.decode(tsae.encode(x_ND)), mean_stream(place, 1)[None])

    def logprobs(arm):
        x_ND = np.asarray(arm, np.float64)
        scale_N1 = np.sqrt(
            (x_ND**2).mean(axis=1, keepdims=True) + config["rms_norm_eps"]
        )
        logits = x_ND / scale_N1 * weights["model.norm.weight"] @ head_VD.T
        return scipy.special.log_softmax(
            np.broadcast_to(logits, (len(id_N), len(head_VD))), axis=1
        )

    at = np.flatnonzero(sequence_N[1:] == sequence_N[:-1])
    clean, *_ = tables = [logprobs(arm)[at] for arm in arms]
    nats = [-table[np.arange(len(at)), id_N[at + 1]].mean() for table in tables]
    kl = [(np.exp(clean) * (clean - table)).sum(axis=1).mean() for table in tables]
    names = ("clean", "spliced", "mean_ablated")
    for name, expected in zip(names, nats, strict=True):
        assert found["cross_entropy"][name]["mean"] == pytest.approx(expected, rel=1e-4)
    for name, expected in zip(names[1:], kl[1:], strict=True):
        assert found["kl"][name]["mean"] == pytest.approx(expected, rel=1e-3)
    recovered = found["cross_entropy_recovered"]
    expected = 1 - (nats[1] - nats[0]) / (nats[2] - nats[0])
    assert recovered["mean"] == pytest.approx(expected, rel=1e-2, abs=1e-3)
    assert recovered["low"] <= recovered["mean"] <= recovered["high"]


def test_what_cannot_be_spliced_is_refused(place, tmp_path, capsys):
    code, error = measured(place, some(), capsys, hook="mlp_out")
    assert code == 2
    assert "(resid_post) can be spliced" in error
    code, error = measured(place, some(), capsys, layer=1, model=tmp_path)
    assert code == 2
    write_checkpoint(tmp_path / "other", num_layers=2, intermediate_size=24)
    code, error = measured(place, some(), capsys, model=tmp_path / "other")
    assert code == 2
    assert "of another model" in error
    reader = "tests.support.readers:WordSums"
    code, error = measured(place, some(), capsys, reader=reader)
    assert code == 2
    assert "has no compare_predictions" in error
