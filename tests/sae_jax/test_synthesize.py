"""A world of known factors, made by a command, and a dictionary's recovery of them."""

import dataclasses
import inspect
import json
import re

import numpy as np
import pytest

from sae_jax import evaluate, io, synthesize
from sae_jax.data.shards import ActivationShards
from sae_jax.data.synthetic import make_synthetic_data, make_synthetic_world
from sae_jax.sae import TSAE
from sae_jax.stats.recovery import recovery_report

SIZE = {"width": 16, "num_sequences": 12, "length": 10, "num_persistent": 3}


@pytest.fixture
def world(tmp_path, capsys):
    flags = [f"--{name}={value}" for name, value in SIZE.items()]
    argv = [f"--out={tmp_path / 'w'}", "--num_momentary=4", *flags]
    assert synthesize.main(argv) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'w'}: 120 tokens, 7 factors\n"
    return tmp_path / "w"


def test_the_world_on_disk_equals_the_functions(world):
    data = make_synthetic_data(seed=0, num_momentary=4, **SIZE)
    shards = ActivationShards(world / "activations")
    np.testing.assert_array_equal(shards.rows(np.arange(120)), data.activations)
    for name in shards.index.factors:
        np.testing.assert_array_equal(shards.column(name), data.columns[name])
    assert shards.index.sequences == 12


def test_the_flags_have_the_functions_defaults():
    flags = vars(synthesize.SynthesizeFlags(out="w"))
    parameters = inspect.signature(make_synthetic_world).parameters.values()
    defaults = {each.name: each.default for each in parameters}
    assert flags == defaults | {"out": "w", "seed": 0}


def test_the_directions_are_what_the_factors_add(world):
    """Activations minus their mean lie in the directions' span, except for noise."""
    shards = ActivationShards(world / "activations")
    directions = np.load(world / "directions.npy")
    assert directions.shape == (7, 16)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, rtol=1e-5)
    on = np.stack([shards.column(n) for n in shards.index.factors], axis=1)
    x = np.asarray(shards.rows(np.arange(120)), np.float32)
    design = np.c_[on, np.ones(len(on))]
    found = np.linalg.lstsq(design, x, rcond=None)[0][:-1]
    cosine = (found * directions).sum(1) / np.linalg.norm(found, axis=1)
    assert cosine.min() > 0.9


def test_a_directory_that_is_there_is_not_written_to(world, capsys):
    assert synthesize.main([f"--out={world}"]) == 2
    assert "exists already; give a new directory" in capsys.readouterr().err


def test_recovery_counts_each_latent_once_and_the_sign():
    decoder = np.eye(4, dtype=np.float32) * [[2.0], [1.0], [1.0], [-1.0]]
    near = np.array([0.95, 0.31, 0, 0]) / np.hypot(0.95, 0.31)
    asked = np.array([[1, 0, 0, 0], near, [0, 0, 3.0, 0], [0, 0, 0, 1]])
    report = recovery_report(decoder, asked)
    assert report["latent"][:3] == [0, 0, 2]
    assert report["cosine"][0] == report["cosine"][2] == 1.0
    assert report["cosine"][1] == round(float(near[0]), 4)
    assert report["cosine"][3] == 0.0  # the opposite factor finds nothing
    assert report["found"] == 0.5
    assert report["random"]["mean_cosine"] < 0.9


@pytest.fixture
def dictionary(world, tmp_path):
    directions = np.load(world / "directions.npy")
    tsae = TSAE.init(0, width=16, latents=8)
    rows = np.concatenate([directions[::-1], np.asarray(tsae.decoder)[:1]])
    io.save(tmp_path / "sae", dataclasses.replace(tsae, decoder=rows))
    return tmp_path / "sae"


def test_evaluate_says_which_directions_a_dictionary_holds(world, dictionary, capsys):
    argv = [f"--sae={dictionary}", f"--activations={world}/activations"]
    asked = f"--directions={world}/directions.npy"
    assert evaluate.main([*argv, asked, "--factors="]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["activations"]["documents"] == 12
    assert not any(shown["activations"]["skipped"].values())
    recovery = shown["recovery"]
    assert recovery["found"] == 1.0
    assert recovery["latent"] == [6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.ones((3, 4)), r"is \[3, 4\]; save one array \[directions, 16\]"),
        (np.full((1, 16), np.nan), "has no rows, or numbers that are not finite"),
        (np.array([{}]), "allow_pickle=False"),
    ],
)
def test_directions_that_cannot_be_compared_are_refused(
    world, dictionary, tmp_path, capsys, rows, said
):
    np.save(tmp_path / "rows.npy", rows)
    argv = [f"--sae={dictionary}", f"--activations={world}/activations"]
    assert evaluate.main([*argv, f"--directions={tmp_path}/rows.npy"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error)
