"""How RL moved a policy, from the checkpoints that a run keeps."""

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
from rlvr_jax.analysis.geometry.movement import measure_run
from rlvr_jax.analysis.geometry.overlap import overlap_arms, overlap_runs, overlap_sets
from rlvr_jax.config import Config
from rlvr_jax.models import Transformer
from rlvr_jax.tokenizer import open_tokenizer
from tests.support.policies import TINY as NARROW

TINY = dataclasses.replace(NARROW, max_seq_len=512)
QUERY = "blocks/query/1"


def policy_params(config):
    """Returns the parameters that the config's policy starts from, as a tree."""
    tokenizer = open_tokenizer(config, texts=tuple, trained_path=None)
    policy = Transformer(
        config.model, tokenizer.vocab_size, nnx.Rngs(0), eos_ids=tokenizer.eos_ids
    )
    return nnx.state(policy)


def write_run(directory, moves, *, seed=0, before=True):
    """Returns a workdir of a run that moved layer 1's queries along one direction.

    `moves` gives, by step, how far the entry from input 0 to output 0 has moved.
    """
    config = Config(model=TINY, seed=seed)
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"config": to_json(config)}))
    params = policy_params(config)
    keep = CheckpointConfig(max_to_keep=9)
    stages = {"sft": {3: 0.0}} if before else {}
    for stage, steps in (stages | {"train": moves}).items():
        path = directory / "checkpoints" / stage
        path.mkdir(parents=True)
        with StageCheckpoints(path, keep) as checkpoints:
            for step, moved in steps.items():
                now = jax.tree.map(lambda x: x, params)
                query = now["blocks"]["query"]
                query[...] = query[...].at[1, 0, 0, 0].add(moved)
                checkpoints.save(step, {"params": now}, {})
    return directory


def by_name(run):
    """Returns the movements of a run by name."""
    return {tensor.name: tensor for tensor in run.tensors}


def test_one_entry_that_moves_evenly_is_of_rank_one_and_straight(tmp_path):
    run = measure_run(
        write_run(tmp_path / "a", {2: 0.5, 4: 1.0, 6: 1.5}),
        on_progress=lambda done, total: None,
    )
    query = by_name(run)[QUERY]
    assert run.steps == [2, 4, 6]
    assert query.part == "attention"
    assert query.size == TINY.hidden_size * TINY.num_heads * TINY.head_dim
    assert query.change.moved_float32 == query.change.moved_bfloat16 == 1 / query.size
    assert query.change.rank_one_share == pytest.approx(1, abs=1e-5)
    assert query.noise.relative_size == pytest.approx(query.change.relative_size)
    assert query.noise.moved_float32 > 0.99
    assert query.noise.rank_one_share < 0.3
    assert query.path.linearity == pytest.approx(1)
    assert query.path.straightness == pytest.approx(1)
    assert query.walk.straightness == pytest.approx(3**-0.5)


def test_tensors_that_stay_have_moved_nowhere(tmp_path):
    run = measure_run(
        write_run(tmp_path / "a", {2: 0.5}), on_progress=lambda done, total: None
    )
    others = [tensor for tensor in run.tensors if tensor.name != QUERY]
    assert {t.part for t in others} == {"embedding", "attention", "mlp", "vectors"}
    assert all(t.change.moved_float32 == 0 for t in others)
    assert sum(t.size for t in run.tensors) == sum(
        x.size for x in jax.tree.leaves(policy_params(Config(model=TINY)))
    )


def test_progress_counts_checkpoints_and_tensors(tmp_path):
    told = []
    run = measure_run(
        write_run(tmp_path / "a", {2: 0.5, 4: 1.0}),
        on_progress=lambda done, total: told.append((done, total)),
    )
    total = 2 + len(run.tensors)
    assert told == [(done, total) for done in range(1, total + 1)]


def bits(*entries, size=16):
    """Returns a set of entries as bits."""
    chosen = np.zeros(size, bool)
    chosen[list(entries)] = True
    return np.packbits(chosen)


def test_overlap_is_relative_to_the_union_and_chance_is_within_tensors():
    one = {"a": bits(0, 1, 2, 3), "b": bits()}
    other = {"a": bits(2, 3, 4, 5), "b": bits(7)}
    overlap = overlap_sets(one, other, sizes={"a": 16, "b": 16})
    assert overlap.share == pytest.approx(2 / 7)
    # a shares 4 * 4 / 16 = 1 by chance, b shares 0: 1 of 9 - 1
    assert overlap.chance == pytest.approx(1 / 8)


def test_random_entries_overlap_by_chance():
    """200 pairs of random sets: their mean share is the chance, within 3 errors."""
    rng = np.random.default_rng(0)
    size, pairs = 400, []
    for _ in range(200):
        one, other = ({"a": np.packbits(rng.random(size) < 0.2)} for _ in range(2))
        pairs.append(overlap_sets(one, other, sizes={"a": size}))
    gaps = np.array([pair.share - pair.chance for pair in pairs])
    assert abs(gaps.mean()) < 3 * gaps.std() / np.sqrt(len(gaps))
    assert np.mean([pair.chance for pair in pairs]) == pytest.approx(1 / 9, abs=0.01)
    itself = overlap_sets(one, one, sizes={"a": size})
    assert itself.share == 1 > 3 * itself.chance


def test_two_empty_sets_have_no_overlap():
    empty = {"a": bits()}
    assert np.isnan(overlap_sets(empty, empty, sizes={"a": 16}).share)


def test_runs_that_moved_the_same_entry_share_it(tmp_path):
    runs = [
        measure_run(write_run(tmp_path / name, {2: moved}), on_progress=lambda *_: None)
        for name, moved in (("a", 0.5), ("b", -0.25))
    ]
    (overlap,) = overlap_runs(runs)
    assert overlap.same_start
    assert overlap.moved.share == 1
    assert overlap.moved.chance < 0.001


def test_pairs_of_arms_have_an_interval_where_no_two_have_a_start_in_common(tmp_path):
    """Two arms of two seeds; in seed 1 they moved no entry in common."""
    arms = {
        arm: [
            measure_run(
                write_run(tmp_path / f"{arm}_{seed}", moves, seed=seed),
                on_progress=lambda *_: None,
            )
            for seed in (0, 1)
        ]
        for arm, moves in (("a", {2: 0.5}), ("b", {2: 0.25}))
    }
    arms["a"][1] = dataclasses.replace(arms["a"][1], start="of seed 1")
    arms["b"][1] = dataclasses.replace(
        arms["b"][1],
        start="of seed 1",
        moved=arms["b"][1].moved | {QUERY: bits(size=8)},
    )
    runs = [run for group in arms.values() for run in group]
    told = {
        (each.arms, each.same_start): each
        for each in overlap_arms(arms, overlap_runs(runs))
    }
    alike, apart = (told[("a", "b"), same] for same in (True, False))
    assert alike.num_pairs == apart.num_pairs == 2
    assert alike.moved.share.value == pytest.approx(0.5)  # 1 of seed 0, 0 of seed 1
    assert alike.moved.share.low < 0.5 < alike.moved.share.high
    assert alike.moved.chance < 0.001
    assert apart.moved.share.value == pytest.approx(0.5)
    assert np.isnan(apart.moved.share.low)  # the same two starts in both pairs
    assert told[("a", "a"), False].num_pairs == 1


def test_command_prints_arms_and_writes_every_tensor(tmp_path, capsys):
    runs = [
        str(write_run(tmp_path / f"run_{seed}", {2: 0.5, 4: 1.0}, seed=seed))
        for seed in (0, 1)
    ]
    out = tmp_path / "geometry.json"
    assert main(["geometry", *runs, f"--out={out}"]) == 0
    text = capsys.readouterr().out
    assert "run_0: 2 runs, from before RL to step 4, 2 checkpoints" in text
    assert "straightness, %" in text
    (arm,) = json.loads(out.read_text())["arms"]
    measured = {(each["measure"], each["part"]): each for each in arm["measures"]}
    assert measured["straightness", "attention"]["mean"] == pytest.approx(1)
    assert measured["straightness", "attention"]["noise"]["mean"] == pytest.approx(
        2**-0.5
    )
    assert [len(run["tensors"]) for run in arm["runs"]] == [20, 20]


@pytest.mark.parametrize(
    ("moves", "before", "words"),
    [
        ({}, True, "RL has not begun"),
        ({2: 0.5}, False, "started from random weights"),
    ],
)
def test_missing_checkpoints_are_reported_in_one_line(
    tmp_path, capsys, moves, before, words
):
    workdir = write_run(tmp_path / "a", moves, before=before)
    assert main(["geometry", str(workdir)]) == 2
    told = capsys.readouterr().err.strip()
    assert words in told
    assert "\n" not in told


@pytest.mark.parametrize("name", ["out.csv", "nowhere/out.json"])
def test_output_is_refused_before_anything_is_read(tmp_path, capsys, name):
    assert main(["geometry", str(tmp_path), f"--out={tmp_path / name}"]) == 2
    assert f"--out={tmp_path / name}" in capsys.readouterr().err
