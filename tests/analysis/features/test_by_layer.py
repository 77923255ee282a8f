"""`analysis features --layers`: a T-SAE at each layer, before RL or pooled."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sae_jax
from job_jax.config_io import to_json
from rlvr_jax.analysis.features import by_layer
from rlvr_jax.analysis.features.command import main
from rlvr_jax.probe import weight_noise
from rlvr_jax.run.setup import open_setup
from sae_jax.data.shards import ActivationShards
from tests.support.moved_policies import CONFIG, STEP, D, F, Z, write_workdir


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
        wandered = weight_noise._move(before, lengths, jax.random.key(100))
        for name, after in (("aimed", aimed), ("wandered", wandered)):
            (directory / name).mkdir()
            write_workdir(setup, directory / name, after)
    return directory


@pytest.fixture(scope="module")
def pooled(runs):
    """Returns the folder of T-SAEs that were trained before and after RL."""
    flags = ["--layers=0,1", "--pooled", f"--null_runs={runs / 'wandered'}"]
    assert main([str(runs / "aimed"), *flags]) == 0
    return runs / "aimed" / "features_by_layer" / f"pooled_{STEP}"


def read_record(folder):
    return json.loads((folder / "layers.json").read_text())


def test_each_layer_has_a_t_sae_of_its_own_stream(pooled):
    widths, decoders = set(), []
    for layer in (0, 1):
        folder = pooled / f"layer_{layer}"
        index = ActivationShards(folder / "activations").index
        assert (index.layer, index.hook) == (layer, f"blocks.{layer}.hook_resid_post")
        widths.add(index.width)
        decoders.append(np.asarray(sae_jax.load(folder / "sae").decoder))
    assert widths == {D}
    assert not np.allclose(*decoders)


def test_both_policies_write_half_of_the_completions(pooled, runs):
    assert main([str(runs / "aimed"), "--layers=1"]) == 0
    alone = runs / "aimed" / "features_by_layer" / f"before_{STEP}" / "layer_1"
    both, one = (
        ActivationShards(folder / "activations")
        for folder in (pooled / "layer_1", alone)
    )
    assert both.index.model == f"noise, step 0 and {STEP}"
    assert one.index.model == "noise, step 0"
    sequences = [np.unique(s.column("sequence")) for s in (both, one)]
    assert [len(each) for each in sequences] == [F * 4, F * 4]
    streams = [_first_stream(s, number) for s, number in ((both, 0), (one, 0))]
    np.testing.assert_array_equal(*streams)
    moved = _first_stream(both, F * 2)  # the same problem, read after RL
    assert np.abs(moved - streams[0]).max() > 0.1


def _first_stream(shards, number):
    """Returns the stream of the first token of a sequence."""
    row = np.flatnonzero(shards.column("sequence") == number)[0]
    return np.asarray(shards.rows(np.array([row])), np.float32)[0]


def test_claims_stand_next_to_those_of_noise_and_of_a_run_that_wandered(
    pooled, runs, capsys
):
    flags = ["--layers=0,1", "--pooled", f"--null_runs={runs / 'wandered'}"]
    assert main([str(runs / "aimed"), *flags]) == 0
    head, *rows = (
        re.split(r" {2,}", line) for line in capsys.readouterr().out.splitlines()
    )
    name = f"null_{runs.name}_wandered"
    shown = [dict(zip(head, row, strict=True)) for row in rows]
    for layer, (each, row) in enumerate(zip(read_record(pooled), shown, strict=True)):
        changes, null = each["changes"], each["nulls"][name]
        counts = {band: kinds["claimed"] for band, kinds in changes["counts"].items()}
        assert counts["all"] >= 1
        assert null["counts"]["all"]["claimed"] == 0
        assert 0 < null["drift"] != changes["drift"]
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
            f"{name} claims": "0",
        }
    assert shown[0]["FVE before"] != shown[1]["FVE before"]


def test_the_same_command_reads_what_is_there(pooled, runs, capsys, monkeypatch):
    before = read_record(pooled)

    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr(by_layer.train, "train", refuse)
    monkeypatch.setattr(by_layer, "load_policy", refuse)
    flags = ["--layers=0,1", "--pooled", f"--null_runs={runs / 'wandered'}"]
    assert main([str(runs / "aimed"), *flags]) == 0
    assert read_record(pooled) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--pooled"], "--pooled is for --layers; name layers"),
        (["--layers=2"], "--layers=2; the policy has layers 0..1"),
        (["--layers=-1"], "--layers=-1; the policy has layers 0..1"),
        (["--layers=0", "--step=3"], "has no step 3; it has [4]"),
        (["another", "--layers=0"], "--layers compares one run, not 2"),
    ],
)
def test_a_wrong_command_is_refused(runs, flags, message, capsys):
    assert main([str(runs / "aimed"), *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_run_of_another_model_is_no_null(runs, tmp_path, capsys):
    other = dataclasses.replace(
        CONFIG, model=dataclasses.replace(CONFIG.model, intermediate_size=32)
    )
    (tmp_path / "checkpoints/train/4").mkdir(parents=True)
    record = {"config": to_json(other), "seed": 0, "device": "8 x cpu"}
    (tmp_path / "config.json").write_text(json.dumps(record))
    flags = ["--layers=0", f"--null_runs={tmp_path}"]
    assert main([str(runs / "aimed"), *flags]) == 2
    assert "has another model than" in capsys.readouterr().err
