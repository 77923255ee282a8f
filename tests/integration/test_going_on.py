"""Runs that continue: with more steps, or from another run's checkpoint."""

import json
import re
import signal

import jax
import numpy as np
import pytest

from job_jax.checkpoint import StageCheckpoints
from rlvr_jax.run.workdir import START
from tests.support.command import completions, metrics, outcome, summary, tiny


def record(workdir):
    return json.loads((workdir / "config.json").read_text())


def arrays(workdir, stage, step, *parts):
    """Returns the arrays of a checkpoint by name, or those under a prefix."""
    with StageCheckpoints(workdir / "checkpoints" / stage) as checkpoints:
        saved = checkpoints._manager.item_metadata(step).state
        abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                leaf.shape,
                leaf.dtype,
                sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0]),
            ),
            {part: saved[part] for part in parts},
        )
        found = checkpoints.restore(step, abstract)[0]
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(found)[0]
    }


def assert_same(some, others):
    assert some.keys() == others.keys()
    for name, array in some.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def test_more_steps_of_a_run_are_those_of_one_that_asked_for_all(
    command, whole, tmp_path
):
    """Two steps and an evaluation, then the four steps of `whole`, with a cut."""
    ended = command.run(*tiny(tmp_path, "--config.train.steps=2"))
    assert ended.code == 0, ended.err
    first = summary(tmp_path)
    assert first["params_sha256"] != summary(whole)["params_sha256"]
    ended = command.cut("train  3/4", signal.SIGKILL, *tiny(tmp_path))
    assert "eval before" not in ended.err
    # The evaluation after step 2 is gone.
    assert summary(tmp_path)["eval"].keys() == {"before"}
    ended = command.run(*tiny(tmp_path))
    assert ended.code == 0, ended.err
    assert outcome(tmp_path) == outcome(whole)
    assert record(tmp_path)["config"] == record(whole)["config"]
    assert record(tmp_path)["former_train_steps"] == [2]
    assert (
        "first planned with 2 steps" in (tmp_path / "report" / "index.html").read_text()
    )
    ended = command.run(*tiny(tmp_path, "--config.train.steps=2"))
    assert ended.code == 2
    assert "would undo steps" in ended.err


OTHERS = (
    "--config.train.optimizer.learning_rate=1e-3",
    "--config.curriculum.name=variance",
    "--config.train.steps=3",
)


@pytest.mark.parametrize("has_optimizer", [False, True])
def test_a_run_goes_on_from_anothers_checkpoint(
    command, whole, tmp_path, has_optimizer
):
    flags = [f"--continue_from={whole}@2", *OTHERS]
    flags += ["--continue_optimizer"] * has_optimizer
    new, cut = tmp_path / "new", tmp_path / "cut"
    ended = command.run(*tiny(new, *flags))
    assert ended.code == 0, ended.err
    assert f"starts from {whole.resolve()}, step 2 of RL" in ended.err
    assert "sft  1/" not in ended.err
    told = record(new)
    assert told["continued_from"] == {
        "workdir": str(whole.resolve()),
        "stage": "train",
        "step": 2,
        "has_optimizer": has_optimizer,
        "earlier": None,
    }
    assert told["config"]["sft"]["steps"] == 0
    page = (new / "report" / "index.html").read_text()
    taken = "with" if has_optimizer else "without"
    assert f"It continues from {whole.resolve()}, step 2 of RL, {taken} its" in page
    # It starts from that policy, and trains on the problems after those used there.
    assert_same(arrays(new, START, 2, "params"), arrays(whole, "train", 2, "params"))
    asked = {
        run: [row["prompt"] for row in completions(run, "train_000000.jsonl.gz")]
        for run in (new, whole)
    }
    assert asked[new] != asked[whole]
    rates = [row["optimizer/learning_rate"] for row in metrics(new)]
    np.testing.assert_allclose(rates, [1e-3 * n / 21 for n in (1, 2, 3)], rtol=1e-5)
    if has_optimizer:
        there = arrays(whole, "train", 2, "opt_state")
        copied = arrays(new, START, 2, "opt_state")
        moments = [name for name in there if re.search(r"\.mu|\.nu|'mu'|'nu'", name)]
        assert moments
        assert_same(*({n: side[n] for n in moments} for side in (there, copied)))
    # Killed and resumed, with or without the parent given again, it ends the same.
    for line, again in (("train  1/3", flags), ("train  3/3", OTHERS)):
        ended = command.cut(line, signal.SIGKILL, *tiny(cut, *again))
        assert ended.code == -signal.SIGKILL
    ended = command.run(*tiny(cut, *OTHERS))
    assert ended.code == 0, ended.err
    assert outcome(cut) == outcome(new)


def test_a_policy_of_another_shape_is_refused_before_anything_is_made(
    command, whole, tmp_path
):
    wider = f"--continue_from={whole}", "--config.model.intermediate_size=24"
    ended = command.run(*tiny(tmp_path / "new", *wider))
    assert ended.code == 2
    assert "model.intermediate_size: 16 -> 24" in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "new").exists()
