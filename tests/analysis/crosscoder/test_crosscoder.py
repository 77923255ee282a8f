"""`analysis crosscoder` on runs with hand-made checkpoints."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from job_jax.checkpoint import StageCheckpoints
from job_jax.config import CheckpointConfig
from job_jax.config_io import to_json
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.crosscoder.text import latents_table
from rlvr_jax.config import SamplingConfig, TrainConfig
from rlvr_jax.models import Transformer
from rlvr_jax.report.page import write_report
from rlvr_jax.tokenizer import open_tokenizer
from sae_jax.data.shards import ActivationShards
from tests.support.policies import TINY_EVAL

STEP = 4
CONFIG = dataclasses.replace(
    TINY_EVAL,
    train=TrainConfig(steps=STEP, sampling=SamplingConfig(max_new_tokens=12)),
)
FLAGS = {"num_problems": 64, "num_samples": 2, "latents": 24, "k": 3, "layer": 1}
TRAINING = {"train_steps": 30, "batch_size": 64}


def write_run(directory, *, seed, size):
    """Returns a workdir of a run that moved every weight by noise of that size."""
    directory.mkdir()
    record = {"config": to_json(CONFIG), "seed": 0, "device": "1 x cpu"}
    (directory / "config.json").write_text(json.dumps(record))
    tokenizer = open_tokenizer(CONFIG, texts=tuple, trained_path=None)
    before = nnx.state(
        Transformer(
            CONFIG.model,
            tokenizer.vocab_size,
            nnx.Rngs(0),
            eos_ids=tokenizer.eos_ids,
        )
    )
    rng = np.random.default_rng(seed)
    after = jax.tree.map(
        lambda x: x + size * rng.standard_normal(x.shape).astype(np.float32), before
    )
    halfway = jax.tree.map(lambda x, y: (x + y) / 2, before, after)
    for stage, states in {
        "sft": {1: before},
        "train": {STEP // 2: halfway, STEP: after},
    }.items():
        path = directory / "checkpoints" / stage
        path.mkdir(parents=True)
        with StageCheckpoints(path, CheckpointConfig(max_to_keep=9)) as checkpoints:
            for step, params in states.items():
                checkpoints.save(step, {"params": params}, {})
    return directory


def command(workdir, **changed):
    flags = {**FLAGS, **TRAINING, **changed}
    return main(
        ["crosscoder", str(workdir), *(f"--{name}={v}" for name, v in flags.items())]
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    run = write_run(directory / "rl", seed=1, size=0.02)
    random = write_run(directory / "random", seed=2, size=0.02)
    assert command(run, random_run=random) == 0
    return run


def read_record(run):
    return json.loads((run / "crosscoder" / "crosscoder.json").read_text())


def test_every_crosscoder_is_counted_beside_rls(done):
    record = read_record(done)
    rows = record["crosscoders"]
    assert list(rows) == [
        "RL",
        "another seed",
        "one half of the problems",
        "the other half",
        "base against base with noise",
        "random reward",
    ]
    for row in rows.values():
        assert sum(row["counts"].values()) == row["alive"] > 0
        assert row["problems"] == FLAGS["num_problems"] // 4
        assert all(row["confirmed"][kind] <= n for kind, n in row["counts"].items())
        assert len(row["fve"]) == 2
        assert 0 < max(row["fve"]) < 1
    assert record["checkpoints"] == ["before", f"step_{STEP}"]
    assert list(record["replicated"]) == [
        "RL by another seed",
        "one half of the problems by the other half",
    ]
    for latent in record["latents"]:
        assert latent["norm"].keys() == set(record["checkpoints"])
        assert "[" in latent["contexts"]


def test_all_checkpoints_read_the_same_texts_of_both_policies(done):
    folder = done / "crosscoder" / "activations"
    names = ("before", f"step_{STEP}", "before_with_noise")
    before, after, noisy = (ActivationShards(folder / name) for name in names)
    texts = 2 * FLAGS["num_problems"] * FLAGS["num_samples"]
    assert before.index.sequences == after.index.sequences == texts
    np.testing.assert_array_equal(before.column("token_id"), after.column("token_id"))
    tokens = np.arange(before.index.tokens)[before.column("role") == 1]
    x_ND = before.rows(tokens)
    moved, noise = (np.linalg.norm(each.rows(tokens) - x_ND) for each in (after, noisy))
    assert 0 < moved < np.linalg.norm(x_ND)
    assert noise == pytest.approx(moved, rel=0.25)  # matched on the first batch
    rows = (folder / "documents.jsonl").read_text().splitlines()
    assert len(rows) == texts
    versions = [json.loads(row)["weight_version"] for row in rows]
    assert versions == [0] * (texts // 2) + [STEP] * (texts // 2)


def test_run_again_it_trains_nothing_and_says_the_same(done, capsys):
    record = read_record(done)
    files = {path: path.stat().st_mtime_ns for path in done.rglob("*.safetensors")}
    assert len(files) >= 5
    (done / "crosscoder" / "crosscoder.json").unlink()
    assert command(done, random_run=done.parent / "random") == 0
    assert read_record(done) == record
    assert files == {path: path.stat().st_mtime_ns for path in files}
    said = capsys.readouterr()
    assert "random reward" in said.out
    assert "crosscoder rl" not in said.err


def test_the_report_shows_it_and_a_run_without_one_does_not(done, tmp_path):
    page = write_report(done).read_text()
    assert "What RL added, kept and lost" in page
    assert "base against base with noise" in page
    bare = write_run(tmp_path / "bare", seed=3, size=0.02)
    assert "What RL added, kept and lost" not in write_report(bare).read_text()


def test_shrunk_latents_are_shown_like_grown_ones():
    """Ten latents that hardly grew do not hide ten lost ones."""

    def row(latent, share, *, confirmed=False):
        interval = [share, share, share]
        return {
            "latent": latent,
            "kind": "kept",
            "confirmed": confirmed,
            "scaling_share": interval,
            "scaling_share_by_band": {"hard": None},
            "norm_share": 0.5,
            "cosine": 1.0,
            "replicated": {"another seed": confirmed},
            "contexts": "[x]",
        }

    grown = [row(z, 0.51) for z in range(10)]
    lost = [row(z, 0.02) for z in range(10, 20)]
    sure = row(20, 0.3, confirmed=True)
    table = latents_table({"latents": [*grown, *lost, sure]})
    shown = [int(cells[0]) for cells in table.rows]
    assert shown == [20, *range(10, 19)]
    assert table.rows[0][-2] == "another seed"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"latents": 32}, "begun with latents=24, not 32"),
        ({"layer": 2}, "--layer=2; the policy has layers 0..1"),
        ({"steps": "x"}, "--steps expects a tuple of int, got ('x',)"),
        ({"num_problems": 8}, "--num_problems=8 is too few"),
        ({"k": 99}, "k=99 asks for more active latents"),
    ],
)
def test_what_cannot_be_done_is_one_line(done, capsys, changed, said):
    assert command(done, **changed) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_step_that_was_not_kept_is_named(tmp_path, capsys):
    run = write_run(tmp_path / "run", seed=1, size=0.02)
    assert command(run, steps=3) == 2
    assert f"has no step 3; it has [{STEP // 2}, {STEP}]" in capsys.readouterr().err
    assert not (run / "crosscoder").exists()  # or the right step would be refused
    assert main(["crosscoder", str(tmp_path)]) == 2
    assert "RL has not begun" in capsys.readouterr().err
