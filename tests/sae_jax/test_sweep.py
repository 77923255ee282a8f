"""`python -m sae_jax.sweep` makes the same dictionaries as separate trainings."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from job_jax.steps import StageSteps
from sae_jax import io
from sae_jax.config import (
    Config,
    LogConfig,
    LossConfig,
    OptimizerConfig,
    PairsConfig,
    SAEConfig,
    TrainConfig,
)
from sae_jax.data.shards import ShardWriter
from sae_jax.sweep import main
from sae_jax.train import main as train

WIDTH = 8


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("activations") / "data"
    rng = np.random.default_rng(0)
    with ShardWriter(
        path, width=WIDTH, layer=2, hook="h", model="toy", roles=("text",)
    ) as out:
        for document in range(20):
            rows_TD = 3 + rng.normal(size=(16, WIDTH)).astype(np.float32)
            tokens = 16 * document + np.arange(16)
            out.add(rows_TD, token_ids=tokens, roles=np.zeros(16, int))
    return Config(
        sae=SAEConfig(latents=32, k=4),
        loss=LossConfig(contrast_block_size=0, dead_after_tokens=200),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
        pairs=PairsConfig(path=str(path), batch_size=32, eval_fraction=0.1),
        train=TrainConfig(steps=12, threshold_start_step=4, num_seeds=2),
        checkpoint=CheckpointConfig(every=5),
        log=LogConfig(every=3),
        mesh=MeshConfig(cpu_devices=8),
    )


def run(command, config, workdir, **flags):
    record = workdir.parent / f"{workdir.name}.json"
    record.write_text(json.dumps({"config": to_json(config)}))
    given = {"config": record, "workdir": workdir, **flags}
    return command([f"--{name}={value}" for name, value in given.items()])


@pytest.fixture(scope="module")
def swept(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("sweep") / "run"
    assert run(main, config, workdir, k="2,4", alpha="0,0.1") == 0
    return workdir


def rows_of(workdir):
    return json.loads((workdir / "summary.json").read_text())["sweep"]


def test_a_dictionary_of_a_sweep_is_that_of_a_run_of_its_own(config, swept, tmp_path):
    own = dataclasses.replace(
        config,
        sae=dataclasses.replace(config.sae, k=2),
        train=dataclasses.replace(config.train, no_contrast_baseline=False),
    )
    assert run(train, own, tmp_path / "alone") == 0
    alone = io.load(tmp_path / "alone" / "sae")
    found = io.load(swept / "saes" / "k2_alpha0.1")
    for ours, theirs in zip(
        jax.tree.leaves(found), jax.tree.leaves(alone), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    summary = json.loads((tmp_path / "alone" / "summary.json").read_text())
    told = [
        io.load_record(path).metadata
        for path in (swept / "saes" / "k2_alpha0.1", tmp_path / "alone" / "sae")
    ]
    assert told[0] == told[1]
    row = rows_of(swept)["k2_alpha0.1"]
    figures = summary["tsae"]["replicas"]
    assert [seed["fve"] for seed in row["seeds"]] == pytest.approx(
        [figures[name]["fve"] for name in ("seed0", "seed1")], rel=1e-4
    )
    assert row["fve"] == pytest.approx(np.mean([s["fve"] for s in row["seeds"]]))


def test_every_combination_has_a_row_and_the_frontier_is_of_them(swept):
    rows = rows_of(swept)
    assert list(rows) == ["k2_alpha0.0", "k2_alpha0.1", "k4_alpha0.0", "k4_alpha0.1"]
    assert {(row["k"], row["alpha"]) for row in rows.values()} == {
        (k, alpha) for k in (2, 4) for alpha in (0.0, 0.1)
    }
    on = [row for row in rows.values() if row["on_frontier"]]
    assert min(rows.values(), key=lambda row: row["l0"]) in on
    assert max(rows.values(), key=lambda row: row["fve"]) in on
    assert all(row["l0"] == pytest.approx(row["k"], rel=0.3) for row in rows.values())


def test_a_sweep_that_is_cut_goes_on_to_the_same_end(
    config, swept, tmp_path, monkeypatch
):
    commit, workdir = StageSteps.commit, tmp_path / "run"

    def cut(self, step, *arguments, **named):
        commit(self, step, *arguments, **named)
        if step == 6:
            raise OSError("the disk is gone")

    monkeypatch.setattr(StageSteps, "commit", cut)
    assert run(main, config, workdir, k="2,4", alpha="0,0.1") == 1
    monkeypatch.undo()
    assert run(main, config, workdir, k="2,4", alpha="0,0.1") == 0
    assert rows_of(workdir) == rows_of(swept)
    assert run(main, config, workdir, k="2,4", alpha="0,0.1") == 0  # has nothing to do


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"k": "2,x"}, "--k expects a tuple of int, got (2, 'x')"),
        ({"k": "99"}, "k=99 asks for more active latents than latents=32"),
        ({"alpha": "-1"}, "alpha"),
    ],
)
def test_numbers_that_cannot_be_are_one_line(config, tmp_path, capsys, flags, said):
    assert run(main, config, tmp_path / "run", **flags) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
