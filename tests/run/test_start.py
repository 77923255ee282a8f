"""A continued run copies its starting checkpoint once and then owns the copy."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from job_jax.checkpoint import CheckpointMismatchError, StageCheckpoints
from job_jax.config import CheckpointConfig
from job_jax.config_io import to_json
from rlvr_jax.config import LoRAConfig, TokenizerConfig
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.update import Updater
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.load import find_checkpoint, load_params_before_rl
from rlvr_jax.run.setup import open_setup
from rlvr_jax.run.start import (
    copy_start,
    copy_tokenizer,
    count_earlier_batches,
    load_start_state,
)
from rlvr_jax.run.trainable import split_trainable
from rlvr_jax.run.workdir import START, Workdir
from rlvr_jax.tasks import FilesTask
from tests.support.policies import TINY_RUN, named

LORA = LoRAConfig(rank=2, target_modules=("q_proj", "down_proj"))
STEP, BATCHES = 4, 7


def updater(setup):
    return Updater(
        setup.graphdef,
        supervised_objective,
        optimizer=setup.config.train.optimizer,
        total_steps=10,
        logits_chunk_size=0,
    )


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    return open_setup(TINY_RUN, tmp_path_factory.mktemp("run"), stages=("train",))


def write_checkpoint(path, stage, config, state):
    """Writes what a run of the config leaves after a step."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"config": to_json(config)}))
    host = {"seconds": 1.0, "host": {"difficulty": {"num_batches": BATCHES}}}
    with StageCheckpoints(path / "checkpoints" / stage, CheckpointConfig()) as saved:
        saved.save(STEP, state, host)


@pytest.fixture
def old(setup, tmp_path):
    """Yields a run whose state after a step has 1 added to all its numbers."""
    with jax.set_mesh(setup.mesh):
        state = updater(setup).init(setup.initial_params())
        state = jax.tree.map(lambda x: x + np.ones((), x.dtype), state)
        write_checkpoint(tmp_path / "old", "train", TINY_RUN, state)
        yield tmp_path / "old"


def go_on(setup, old, new, *, stage="train", has_optimizer=False):
    """Returns a workdir into which the other run's checkpoint has been copied."""
    workdir = Workdir(new, setup.config)
    lineage = Lineage(
        workdir=str(old), stage=stage, step=STEP, has_optimizer=has_optimizer
    )
    copy_start(setup, workdir, lineage)
    return workdir


@pytest.mark.parametrize("has_optimizer", [False, True])
def test_the_policy_is_the_other_runs(setup, old, tmp_path, has_optimizer):
    workdir = go_on(setup, old, tmp_path / "new", has_optimizer=has_optimizer)
    first = named(setup.initial_params())
    shutil.rmtree(old)  # the copy needs nothing else
    found = load_params_before_rl(setup, workdir.checkpoints)
    for name, array in named(found).items():
        np.testing.assert_array_equal(array, first[name] + 1, err_msg=name)
    assert count_earlier_batches(workdir) == BATCHES
    assert find_checkpoint(workdir.path) == (workdir.checkpoints / START, STEP)
    assert count_earlier_batches(Workdir(tmp_path / "anew", TINY_RUN)) == 0


def test_moments_are_copied_and_steps_start_at_zero(setup, old, tmp_path):
    workdir = go_on(setup, old, tmp_path / "new", has_optimizer=True)
    abstract = updater(setup).abstract_state(setup.abstract_params())
    state = load_start_state(workdir, abstract)
    assert jax.tree.structure(state) == jax.tree.structure(abstract)
    assert (int(state.step), int(state.consecutive_nonfinite)) == (0, 0)
    numbers = {
        jax.tree_util.keystr(path): np.unique(leaf).tolist()
        for path, leaf in jax.tree_util.tree_flatten_with_path(state.opt_state)[0]
    }
    counts = {name: n for name, n in numbers.items() if name.endswith(".count")}
    assert sorted(counts.values()) == [[0], [1]]  # the schedule's, Adam's
    moments = [n for name, n in numbers.items() if name not in counts]
    assert len(moments) == 2 * len(jax.tree.leaves(state.params))
    assert all(values == [1.0] for values in moments)


def test_adapters_are_merged_into_what_they_stood_beside(setup, old, tmp_path):
    """With A 0 and B 1 nothing changes; with both 1, W grows by alpha / rank * rank."""
    adapted = dataclasses.replace(
        TINY_RUN, train=dataclasses.replace(TINY_RUN.train, lora=LORA)
    )
    theirs = dataclasses.replace(setup, config=adapted)
    trainable = split_trainable(theirs, setup.initial_params)
    ones = jax.tree.map(lambda x: x * 0 + 1, trainable.init())
    write_checkpoint(tmp_path / "lora", "train", adapted, {"params": ones})
    workdir = go_on(setup, tmp_path / "lora", tmp_path / "new")
    first = named(setup.initial_params())
    for name, array in named(load_params_before_rl(setup, workdir.checkpoints)).items():
        grown = name.endswith((".query", ".down"))  # q_proj, down_proj
        np.testing.assert_allclose(
            array, first[name] + grown * LORA.alpha, rtol=1e-5, err_msg=name
        )
    # The adapters of a continued run are merged into the weights that it started from.
    write_checkpoint(workdir.path, "train", adapted, {"params": ones})
    twice = go_on(setup, workdir.path, tmp_path / "twice")
    for name, array in named(load_params_before_rl(setup, twice.checkpoints)).items():
        grown = name.endswith((".query", ".down"))  # q_proj, down_proj
        np.testing.assert_allclose(
            array, first[name] + 2 * grown * LORA.alpha, rtol=1e-5, err_msg=name
        )


def test_a_start_before_rl_has_no_batches(setup, old, tmp_path):
    (old / "checkpoints" / "train").rename(old / "checkpoints" / "sft")
    workdir = go_on(setup, old, tmp_path / "new", stage="sft")
    assert count_earlier_batches(workdir) == 0


def test_it_is_copied_once(setup, old, tmp_path):
    workdir = go_on(setup, old, tmp_path / "new")
    workdir.write_config(setup.config, device="abacus")
    shutil.rmtree(old)
    go_on(setup, old, tmp_path / "new")


def test_other_shapes_are_refused_in_one_line(setup, old, tmp_path):
    wide = dataclasses.replace(TINY_RUN.model, intermediate_size=64)
    config = dataclasses.replace(TINY_RUN, model=wide)
    other = open_setup(config, tmp_path / "unused", stages=("train",))
    for has_optimizer in (False, True):
        with pytest.raises(CheckpointMismatchError) as refused:
            go_on(other, old, tmp_path / "new", has_optimizer=has_optimizer)
        assert "\n" not in str(refused.value)
    assert not list((tmp_path / "new").rglob("start"))


def test_a_tokenizer_that_was_learned_there_is_used_here(old, tmp_path):
    learned = dataclasses.replace(
        TINY_RUN,
        task=FilesTask(train_path="train.jsonl", eval_path="eval.jsonl"),
        tokenizer=TokenizerConfig(kind="sentencepiece"),
    )
    (old / "tokenizer.model").write_bytes(b"pieces")
    lineage = Lineage(workdir=str(old), stage="train", step=STEP, has_optimizer=False)
    for config in (learned, TINY_RUN):
        workdir = Workdir(tmp_path / "new", config)
        copy_tokenizer(config, workdir, lineage)
        assert workdir.tokenizer_path.exists() == (config is learned)
