"""Completions of stage `difficulty`: which are kept, where, and with which bands."""

import dataclasses
import types

import pytest

from rlvr_jax.config import Config, DifficultyConfig, EvalConfig, LogConfig
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.rollouts.show import find_rollouts, read_rows
from rlvr_jax.run.workdir import Workdir, saved_rollouts
from rlvr_jax.stages.difficulty import _save_completions
from rlvr_jax.types import Problem, Verdict

# Batches of 2 problems, 3 samples each.
CONFIG = Config(
    difficulty=DifficultyConfig(num_samples=3),
    eval=EvalConfig(batch_size=2),
    log=LogConfig(difficulty_rollouts=7),
)


def judged(name, letters, text=""):
    """Returns the completions of one problem; "rrw" means right, right, wrong."""
    status = {"r": "correct", "w": "incorrect"}
    return [
        GradedCompletion(
            problem=Problem(id=name, prompt="?", gold="4", verifier="", source=""),
            completion=f"{text}{number}",
            verdict=Verdict(status=status[letter], answer=letter),
            length=5,
            finished=True,
            strategy=None,
            weight_version=0,
        )
        for number, letter in enumerate(letters)
    ]


@pytest.fixture
def ctx(tmp_path):
    setup = types.SimpleNamespace(config=CONFIG)
    return types.SimpleNamespace(setup=setup, workdir=Workdir(tmp_path, CONFIG))


def rows(ctx, step):
    file, _ = find_rollouts(ctx.workdir.path, stage="difficulty", step=step)
    return read_rows(file)


def test_the_first_completions_are_kept_a_file_for_each_batch(ctx):
    _save_completions(ctx, 0, [*judged("a", "rrr"), *judged("b", "rrw")])
    _save_completions(ctx, 1, [*judged("c", "wrr"), *judged("d", "www")])
    _save_completions(ctx, 2, judged("e", "rrr"))
    assert saved_rollouts(ctx.workdir.path) == {"difficulty": [0, 1]}
    first, second = rows(ctx, 0), rows(ctx, 1)
    assert [row["id"] for row in first] == ["a"] * 3 + ["b"] * 3
    assert [row["id"] for row in second] == ["c"]
    assert {row["stage"] for row in first} == {"difficulty"}
    # Its one kept sample is wrong, but all three samples decide the band.
    assert (second[0]["verdict"], second[0]["band"]) == ("incorrect", "medium")
    assert [row["band"] for row in first] == ["easy"] * 3 + ["medium"] * 3


def test_a_batch_that_is_sampled_again_replaces_its_file(ctx):
    _save_completions(ctx, 0, judged("a", "rrw", "before"))
    _save_completions(ctx, 0, judged("a", "rrw", "after"))
    texts = [row["completion"] for row in rows(ctx, 0)]
    assert texts == ["after0", "after1", "after2"]


def test_none_are_kept_where_none_are_wanted(ctx):
    log = dataclasses.replace(CONFIG.log, difficulty_rollouts=0)
    ctx.setup.config = dataclasses.replace(CONFIG, log=log)
    _save_completions(ctx, 0, judged("a", "rrw"))
    assert saved_rollouts(ctx.workdir.path) == {}
