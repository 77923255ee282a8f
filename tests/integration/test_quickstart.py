"""A small quickstart, as a user runs it: the seed decides every bit."""

import re

import numpy as np
import pytest

from tests.support.command import (
    ROOT,
    completions,
    metrics,
    outcome,
    overrides,
    summary,
)

SMALL = overrides(
    model__num_layers=1,
    model__hidden_size=16,
    model__intermediate_size=16,
    model__num_heads=1,
    model__num_kv_heads=1,
    sft__steps=3,
    sft__batch_size=16,
    difficulty__num_samples=2,
    difficulty__pool_size=32,
    probe__layer=0,
    probe__num_problems=16,
    probe__num_reference_texts=16,
    probe__sae__architecture__latents=32,
    probe__sae__architecture__k=4,
    probe__sae__optimizer__warmup_steps=1,
    probe__sae__train__steps=10,
    probe__sae__train__threshold_start_step=2,
    train__steps=2,
    train__overlong_buffer=30,
    eval__num_problems=16,
    eval__num_samples=2,
    eval__k="(1,2)",
    eval__num_gold_problems=0,
    log__rollouts_every=1,
)


@pytest.fixture(scope="module")
def runs(command, tmp_path_factory):
    """Three workdirs: seed 0, seed 0 again in another process, and seed 1."""
    found = []
    for number, seed in enumerate((0, 0, 1)):
        workdir = tmp_path_factory.mktemp("quickstart") / "run"
        ended = command.run(
            f"--config={ROOT / 'configs' / 'quickstart.py'}",
            f"--workdir={workdir}",
            f"--config.seed={seed}",
            *SMALL,
            hash_seed=number,
        )
        assert ended.code == 0, ended.err
        found.append(workdir)
    return found


def _autoencoder(workdir):
    """Returns all arrays written by the probe's fit."""
    files = sorted((workdir / "probe").rglob("*.npz"))
    assert files
    arrays = {}
    for file in files:
        with np.load(file) as stored:
            arrays |= {f"{file.name}/{name}": stored[name] for name in stored}
    return arrays


def test_one_seed_gives_the_same_bits_twice(runs):
    one, again, _ = runs
    assert outcome(one) == outcome(again)
    assert (one / "difficulty.jsonl").read_bytes() == (
        again / "difficulty.jsonl"
    ).read_bytes()
    ours, theirs = _autoencoder(one), _autoencoder(again)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_another_seed_gives_another_run_in_every_part(runs):
    """Except the held-out problems, which are the same for every seed."""
    one, _, other = runs
    assert summary(one)["params_sha256"] != summary(other)["params_sha256"]
    for ours, theirs in zip(metrics(one), metrics(other), strict=True):
        assert (ours["stage"], ours["step"]) == (theirs["stage"], theirs["step"])
        if ours["stage"] == "difficulty":  # a pass rate, often 0 for both
            continue
        # An autoencoder's metrics are named by its seed.
        one_row, other_row = (
            {re.sub(r"^seed\d+", "seed", name): value for name, value in row.items()}
            for row in (ours, theirs)
        )
        assert one_row.keys() == other_row.keys()
        names = one_row.keys() - {"stage", "step"}
        assert any(one_row[name] != other_row[name] for name in names), ours
    for name in ("difficulty_000000", "train_000000", "train_000001"):
        prompts, texts = (
            [
                [row[key] for row in completions(run, f"{name}.jsonl.gz")]
                for run in (one, other)
            ]
            for key in ("prompt", "completion")
        )
        assert prompts[0] != prompts[1]
        assert texts[0] != texts[1]
    for when in ("before", "after"):
        rows = [
            completions(run, f"eval_{when}_000000.jsonl.gz") for run in (one, other)
        ]
        ids, texts = (
            [[row[key] for row in each] for each in rows]
            for key in ("id", "completion")
        )
        assert ids[0] == ids[1]
        assert texts[0] != texts[1]
    arrays = _autoencoder(one), _autoencoder(other)
    assert any(
        not np.array_equal(arrays[0][name], arrays[1][name])
        for name in arrays[0].keys() & arrays[1].keys()
    )


def test_two_steps_learn_from_different_problems_and_move_the_policy(runs):
    """Guards the tests above: runs that do nothing would all be equal."""
    for workdir in runs:
        names = [f"train_{step:06}.jsonl.gz" for step in range(2)]
        first, second = (completions(workdir, name) for name in names)
        assert [row["prompt"] for row in first] != [row["prompt"] for row in second]
        moved = [
            row["optimizer/grad_norm"]
            for row in metrics(workdir)
            if row["stage"] == "train"
        ]
        assert min(moved) > 0
    digests = {summary(workdir)["params_sha256"] for workdir in runs}
    assert len(digests) == 2
