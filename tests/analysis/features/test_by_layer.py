"""`analysis features --layers`: a T-SAE at each layer, before RL or pooled."""

import contextlib
import dataclasses
import io
import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sae_jax
from job_jax.checkpoint import StageCheckpoints
from job_jax.command import STOPPED
from job_jax.config import CheckpointConfig
from job_jax.config_io import to_json
from job_jax.steps import StoppedError
from rlvr_jax.analysis.features import by_layer
from rlvr_jax.analysis.features.command import main
from rlvr_jax.config import LoRAConfig
from rlvr_jax.config.probe import ProbeConfig
from rlvr_jax.probe import weight_noise
from rlvr_jax.run.setup import open_setup
from sae_jax.data.shards import ActivationShards
from tests.support.moved_policies import (
    CONFIG,
    STEP,
    D,
    F,
    Z,
    move_at_random,
    write_workdir,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Returns a run that moved every token along a direction, and one that wandered."""
    directory = tmp_path_factory.mktemp("runs")
    setup = open_setup(CONFIG, directory / "none", stages=("eval",))
    with jax.set_mesh(setup.mesh):
        before = setup.initial_params()
        aimed = jax.tree.map(jnp.copy, before)
        direction = np.asarray(sae_jax.TSAE.init(0, width=D, latents=Z).encoder)[:, 7]
        aimed["embedding"][...] += 0.3 * direction[None]
        lengths = jax.tree.map(lambda x: 0.1 * x, weight_noise._tensor_norms(before))
        wandered = move_at_random(before, lengths, seed=100)
        for name, after in (("aimed", aimed), ("wandered", wandered)):
            (directory / name).mkdir()
            write_workdir(setup, directory / name, after)
        stranger = directory / "stranger"
        shutil.copytree(directory / "wandered", stranger)
        shutil.rmtree(stranger / "checkpoints/sft")
        with StageCheckpoints(
            stranger / "checkpoints/sft", CheckpointConfig()
        ) as checkpoints:
            checkpoints.save(1, {"params": aimed}, {})
    return directory


def compare(runs, *flags):
    return main([str(runs / "aimed"), *flags])


def pooled_flags(runs):
    return ["--layers=0,1", "--pooled", f"--null_runs={runs / 'wandered'}"]


@pytest.fixture(scope="module")
def pooled(runs):
    """Returns the folder of T-SAEs that were trained on all policies.

    The first call is stopped after the first layer's T-SAE, and a second one resumes.
    It says whose texts are sampled.
    """
    read = by_layer._read_texts

    def stop(*args):
        if args[5] == 1:
            raise StoppedError
        read(*args)

    by_layer._read_texts = stop
    try:
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            assert compare(runs, *pooled_flags(runs)) == STOPPED
    finally:
        by_layer._read_texts = read
    for author in ("", "run, ", f"null_{runs.name}_wandered, "):
        assert f"texts of {author}step {STEP if author else 0}" in shown.getvalue()
    folder = runs / "aimed" / "features_by_layer" / f"pooled_{STEP}"
    assert (folder / "layer_0/features").is_dir()
    assert not (folder / "layers.json").exists()
    assert compare(runs, *pooled_flags(runs)) == 0
    return folder


def read_record(folder):
    return json.loads((folder / "layers.json").read_text())


def test_each_layer_has_a_t_sae_of_its_own_stream(pooled):
    decoders, streams = [], []
    for layer in (0, 1):
        shards = ActivationShards(pooled / f"layer_{layer}" / "activations")
        hook = f"blocks.{layer}.hook_resid_post"
        assert (shards.index.layer, shards.index.hook) == (layer, hook)
        streams.append(first_stream(shards, 0))
        decoders.append(
            np.asarray(sae_jax.load(pooled / f"layer_{layer}" / "sae").decoder)
        )
    assert not np.allclose(*streams)
    assert not np.allclose(*decoders)


def test_all_policies_write_and_read_equal_shares(pooled, runs):
    assert compare(runs, "--layers=1") == 0
    alone = runs / "aimed" / "features_by_layer" / f"before_{STEP}" / "layer_1"
    both, one = (
        ActivationShards(folder / "activations")
        for folder in (pooled / "layer_1", alone)
    )
    # Four samples of a problem: all of the policy before RL, or one of each of three.
    assert num_sequences(one) == F * 4
    assert num_sequences(both) == F * 3
    np.testing.assert_array_equal(first_stream(both, 0), first_stream(one, 0))
    for number in (F, 2 * F):  # the same problem, read after RL
        assert np.abs(first_stream(both, number) - first_stream(both, 0)).max() > 0.01
    texts = [
        np.concatenate([tokens_of(both, number + F * k) for number in range(F)])
        for k in range(3)
    ]
    assert len({tuple(text.tolist()) for text in texts}) == 3


def num_sequences(shards):
    return len(np.unique(shards.column("sequence")))


def first_stream(shards, number):
    """Returns the stream of the first token of a sequence."""
    row = np.flatnonzero(shards.column("sequence") == number)[0]
    return np.asarray(shards.rows(np.array([row])), np.float32)[0]


def tokens_of(shards, number):
    return shards.column("token_id")[shards.column("sequence") == number]


def test_claims_stand_next_to_those_of_noise_and_of_a_run_that_wandered(
    pooled, runs, capsys
):
    assert compare(runs, *pooled_flags(runs)) == 0
    head, *rows = (
        re.split(r" {2,}", line)
        for line in capsys.readouterr().out.splitlines()
        if "  " in line
    )
    name = f"null_{runs.name}_wandered"
    shown = [dict(zip(head, row, strict=True)) for row in rows]
    record = read_record(pooled)
    for layer, row in enumerate(shown):
        changes, null = record[str(layer)]["run"], record[str(layer)]["null_runs"][name]
        assert (changes["run"], null["run"]) == ("aimed", name)
        counts = {band: kinds["claimed"] for band, kinds in changes["counts"].items()}
        assert null["counts"]["all"]["claimed"] == 0
        draws = [draw["all"]["claimed"] for draw in changes["nulls"][0]["draws"]]
        (fidelity,) = (f for f in changes["sae_fidelity"] if f["band"] == "")
        assert row == {
            "layer": str(layer),
            "FVE before": f"{fidelity['before']:.3f}",
            "FVE after": f"{fidelity['after']:.3f}",
            "stream moved": f"{100 * changes['drift']:.2g} %",
            "tested": str(changes["tested"]["all"]),
            "claimed": str(counts["all"]),
            "in easy": str(counts["easy"]),
            "in medium": str(counts["medium"]),
            "noise claims": f"{np.mean(draws):.2g}",
            f"{name} moved": f"{100 * null['drift']:.2g} %",
            f"{name} claims": "0",
        }
    assert int(shown[0]["claimed"]) >= 1
    moved = [row["stream moved"] for row in shown]
    moved += [row[f"{name} moved"] for row in shown]
    assert len(set(moved)) == 4
    # Each T-SAE explains most of the stream of its own layer.
    assert min(float(row["FVE before"]) for row in shown) > 0.6


def test_another_layer_joins_those_that_are_there(pooled, runs, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    before = read_record(pooled)
    monkeypatch.setattr(by_layer.train, "train", refuse)
    monkeypatch.setattr(by_layer, "load_policy", refuse)
    monkeypatch.chdir(runs)  # another way to write the same paths
    flags = ["--layers=1", "--pooled", "--null_runs=wandered"]
    assert main(["aimed", *flags]) == 0
    assert read_record(pooled) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--pooled"], "--pooled is for --layers; name layers"),
        (["--layers=2"], "--layers=2; the policy has layers 0..1"),
        (["--layers=-1"], "--layers=-1; the policy has layers 0..1"),
        (["--layers=0", "--step=3"], "has no step 3; it has [4]"),
        (["another", "--layers=0"], "--layers compares one run, not 2"),
        (
            ["--layers=0", "--null_runs={runs}/wandered,{runs}/wandered"],
            "two null runs are called null_",
        ),
        (["--layers=0", "--null_runs={runs}/aimed"], "is the run itself"),
    ],
)
def test_a_wrong_command_is_refused(runs, flags, message, capsys):
    assert compare(runs, *(flag.format(runs=runs) for flag in flags)) == 2
    assert message in capsys.readouterr().err


def test_other_null_runs_than_those_that_were_begun_are_refused(runs, tmp_path, capsys):
    run = shutil.copytree(runs / "wandered", tmp_path / "run")
    null = runs / "stranger"
    name = "null_" + "_".join(null.parts[-2:])
    flags = ["--layers=0", f"--null_runs={null}"]
    for kind, others, more in (
        ("pooled", {"null_a_b": "/runs/a/b"}, ["--pooled"]),
        ("before", {name: "/runs/a/b"}, []),  # another run of this name
    ):
        folder = run / "features_by_layer" / f"{kind}_{STEP}"
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps({"null_runs": others}))
        assert main([str(run), *flags, *more]) == 2
        message = f"{folder} was begun with --null_runs=/runs/a/b; use these again"
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"probe": ProbeConfig()},
            "has no settings of a T-SAE: train with probe.name=sae",
        ),
        (
            {"probe": dataclasses.replace(CONFIG.probe, sae_path="there")},
            "took its autoencoder from probe.sae_path=there",
        ),
        ({}, "reference_texts.npz is missing: stage probe has not ended"),
    ],
)
def test_a_run_without_what_is_needed_is_refused(tmp_path, change, message, capsys):
    write_config(tmp_path, dataclasses.replace(CONFIG, **change))
    assert main([str(tmp_path), "--layers=0"]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_has_not_begun_rl_is_refused(tmp_path, capsys):
    write_config(tmp_path, CONFIG)
    shutil.rmtree(tmp_path / "checkpoints")
    assert main([str(tmp_path), "--layers=0"]) == 2
    assert "RL has not begun" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "step", "message"),
    [
        (
            {"model": dataclasses.replace(CONFIG.model, intermediate_size=32)},
            STEP,
            "has another model than",
        ),
        (
            {"train": dataclasses.replace(CONFIG.train, lora=LoRAConfig(rank=2))},
            STEP,
            "has another model than",
        ),
        ({}, STEP + 1, "has no step 4; it has [5]"),
    ],
)
def test_a_run_that_cannot_be_read_alike_is_no_null(
    runs, tmp_path, change, step, message, capsys
):
    write_config(tmp_path, dataclasses.replace(CONFIG, **change), step=step)
    assert compare(runs, "--layers=0", f"--null_runs={tmp_path}") == 2
    assert message in capsys.readouterr().err


def write_config(directory, config, *, step=STEP):
    (directory / f"checkpoints/train/{step}").mkdir(parents=True)
    record = {"config": to_json(config), "seed": 0, "device": "8 x cpu"}
    (directory / "config.json").write_text(json.dumps(record))


def test_a_null_run_from_other_weights_is_refused(runs, tmp_path, capsys):
    run = shutil.copytree(runs / "wandered", tmp_path / "run")
    flags = ["--layers=0", f"--null_runs={runs / 'stranger'}"]
    assert main([str(run), *flags]) == 2
    assert "began RL from other weights" in capsys.readouterr().err
    assert not (run / "features_by_layer").exists()  # so a better call is not refused
