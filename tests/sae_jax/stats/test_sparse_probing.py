"""Probes of a few latents: against another fit, and where one latent is enough."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from sae_jax import io
from sae_jax.data.corpus import open_corpus
from sae_jax.data.shards import ShardWriter
from sae_jax.evaluate import main
from sae_jax.sae import TSAE
from sae_jax.stats.sparse_probing import (
    Probes,
    absorbed_share,
    fit_logistic,
    sparse_probe_report,
    spread,
)

PROBLEMS, TOKENS, D = 40, 20, 6


def test_a_fit_is_the_minimum_that_scipy_finds():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 5)) * [1, 5, 0.2, 1, 1]
    truth = np.stack([x[:, 0] + rng.standard_normal(300) > 0, x[:, 1] > 0], axis=1)
    columns = np.array([[0, 2, 4], [1, 3, 0]])
    weight, bias = fit_logistic(
        *map(jnp.asarray, (x.astype(np.float32), truth, columns))
    )
    for c in range(2):  # on the second class the truth is separable without error
        inputs = x[:, columns[c]]
        scale = np.sqrt((inputs**2).mean(axis=0))
        sign = 2.0 * truth[:, c] - 1

        def loss(w, inputs=inputs / scale, sign=sign):
            return np.logaddexp(0, -sign * (inputs @ w[:-1] + w[-1])).sum() + 0.5 * (
                w[:-1] @ w[:-1]
            )

        expected = minimize(loss, np.zeros(4), tol=1e-10).x
        np.testing.assert_allclose(
            weight[c] * scale, expected[:-1], rtol=1e-3, atol=1e-3
        )
        assert bias[c] == pytest.approx(expected[-1], abs=1e-3)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Returns a world in which latent 0 means label 1, and 2 and 3 together label 2."""
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("world") / "data"
    with ShardWriter(
        path,
        width=D,
        layer=0,
        hook="h",
        model="m",
        roles=("response",),
        factors=("kind", "noise"),
        dtype="float32",
    ) as out:
        for problem in range(PROBLEMS):
            kind_T = rng.integers(0, 3, TOKENS)
            x_TD = rng.random((TOKENS, D)) * (rng.random((TOKENS, D)) < 0.5)
            x_TD[:, 0] = np.where(kind_T == 1, 1 + rng.random(TOKENS), 0)
            x_TD[:, 1] = 0
            both = rng.random(TOKENS) < 0.5
            x_TD[:, 2] = np.where((kind_T == 2) & both, 1.0, 0.0)
            x_TD[:, 3] = np.where((kind_T == 2) & ~both, 1.0, 0.0)
            out.add(
                x_TD.astype(np.float32),
                token_ids=TOKENS * problem + np.arange(TOKENS),
                roles=np.zeros(TOKENS, int),
                factors={"kind": kind_T, "noise": rng.integers(0, 2, TOKENS)},
                problem=str(problem),
            )
    return path


def identity() -> TSAE:
    """Returns a dictionary whose latents are the coordinates."""
    return dataclasses.replace(
        TSAE.init(0, width=D, latents=D), encoder=jnp.eye(D), decoder=jnp.eye(D)
    )


def test_each_further_latent_adds_information(world):
    corpus = open_corpus(world, identity())
    found = sparse_probe_report(identity(), corpus, "kind", counts=(1, 3))
    # One latent always separates label 1, label 2 half of the time (0.75), and label 0
    # where neither is on.
    assert 0.75 < found["1"]["auroc"] < 0.95
    assert found["3"]["auroc"] > 0.99
    assert found["activations"]["auroc"] > 0.99
    assert abs(found["shuffled"]["auroc"] - 0.5) < 0.1
    assert found["3"]["std"] < 0.01
    assert 0 <= found["absorbed"]["share"] < 0.35
    assert 0 < found["1"]["std"] < 0.05  # the halves of the problems differ
    nothing = sparse_probe_report(identity(), corpus, "noise", counts=(4,))
    assert abs(nothing["4"]["auroc"] - 0.5) < 0.06


def test_a_value_that_was_not_there_to_learn_has_no_score():
    probes = Probes(np.eye(2, dtype=np.float32), np.array([0.0, np.nan]))
    inputs = np.array([[1.0, 0.0], [0.0, 1.0], [0.2, 0.5]])
    assert probes.mean_auroc(inputs, np.array([0, 1, 1])) == 1.0
    unknown = np.array([2, 2, 2])
    nothing = absorbed_share(identity(), inputs, inputs, unknown, probes, unknown)
    assert np.isnan(nothing)
    assert spread("share", [nothing]) == {"share": None, "std": None}


@pytest.mark.parametrize("absorbs", [False, True])
def test_an_absorbing_latent_is_reported(absorbs):
    """On half of the tokens of class 1, a second feature is on as well.

    A dictionary that absorbs has one latent for both together, and its latent for the
    first is silent there; the other dictionary has a latent for each.
    """
    rng = np.random.default_rng(2)
    labels = np.arange(400) % 2
    child = (labels == 1) & (rng.random(400) < 0.5)
    x = np.stack([labels, child, rng.random(400)], axis=1).astype(np.float32)
    decoder = np.eye(3, dtype=np.float32)
    f = x.copy()
    if absorbs:
        decoder[1] = [1.0, 1.0, 0.0]
        f[:, 0] = labels & ~child
    tsae = dataclasses.replace(
        TSAE.init(0, width=3, latents=3), decoder=jnp.asarray(decoder)
    )
    direction = np.array([[-1, 0, 0], [1, 0, 0]], np.float32)
    probes = Probes(direction, np.array([0.5, -0.5], np.float32))
    share = absorbed_share(tsae, x, f, labels, probes, np.array([2, 0]))
    # Class 0 has nothing along its probe, so nothing can be absorbed.
    expected = child[labels == 1].mean() / 2 if absorbs else 0.0
    assert share == pytest.approx(expected)


def test_the_command_prints_them_and_refuses_non_numbers(world, tmp_path, capsys):
    io.save(tmp_path / "sae", identity())
    argv = [f"--sae={tmp_path / 'sae'}", f"--activations={world}", "--factors=kind"]
    assert main([*argv, "--sparse_probes=1,2"]) == 0
    probes = json.loads(capsys.readouterr().out)["factors"]["kind"]["sparse_probes"]
    assert probes.keys() == {"1", "2", "activations", "shuffled", "absorbed"}
    for wrong, said in (
        ("0", "0 is out of range"),
        ("x", "--sparse_probes expects a tuple of int, got ('x',)"),
        (str(D + 1), f"{D + 1} is out of range"),
    ):
        assert main([*argv, f"--sparse_probes={wrong}"]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
