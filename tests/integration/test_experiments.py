"""An experiment as a user runs it: cut, resumed, and its files."""

import json
import signal

import pytest

from rlvr_jax.experiment.command import main
from tests.support.command import ROOT, SMOKE, TINY, rollouts, summary

RECIPE = """
from pathlib import Path

from job_jax.command import load_config
from job_jax.config_io import override
from rlvr_jax.config import Arm, Config, Experiment


def get_config():
    return override(load_config(Path({smoke!r}), Config), {overrides!r})


def get_experiment():
    return Experiment(
        question="Do more steps move more?",
        reference="nobody",
        arms={{"plain": Arm(), "short": Arm(overrides={{"train.steps": "2"}})}},
        baseline="plain",
        outcomes=("pass@1", "completion length"),
        seed_sd=0.1,
        seed_sd_source="a guess",
        seeds=(0, 1),
    )
"""


@pytest.fixture
def recipe(tmp_path):
    given = [flag.removeprefix("--config.").partition("=") for flag in TINY]
    overrides = {key: value for key, _, value in given}
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE.format(smoke=str(SMOKE), overrides=overrides))
    return path


def test_an_experiment_is_cut_taken_up_and_told_of(command, recipe, tmp_path):
    folder = tmp_path / "runs"
    how = {"module": "rlvr_jax.experiment"}
    args = (f"--config={recipe}", f"--workdir={folder}")
    cut = command.cut("train  2/4", signal.SIGTERM, *args, **how)
    assert cut.code == 75, cut.err
    assert cut.err.endswith("run the same command again to continue\n")
    assert not (folder / "short").exists()
    ended = command.run(*args, **how)
    assert ended.code == 0, ended.err
    assert "run 1/5  plain, seed 0\n" in ended.err  # the start of seed 0 had ended
    assert ended.out.endswith(f"{folder}/result/index.html\n")
    for seed in (0, 1):
        # Both start from the same SFT, and sample the same problems before RL.
        before = [
            rollouts(folder / arm / f"seed_{seed}")["eval_before_000000.jsonl.gz"]
            for arm in ("plain", "short")
        ]
        assert before[0] == before[1]
    digests = {
        summary(folder / arm / f"seed_{seed}")["params_sha256"]
        for arm in ("plain", "short")
        for seed in (0, 1)
    }
    assert len(digests) == 4
    found = json.loads((folder / "result/comparison.json").read_text())
    assert [(arm["label"], arm["seeds"]) for arm in found["arms"]] == [
        ("plain", [0, 1]),
        ("short", [0, 1]),
    ]
    assert found["arms"][1]["differs"] == ["train.steps: 4 -> 2"]
    again = command.run(*args, "--arms=short", **how)
    assert again.code == 0
    assert again.err == ""
    assert "4 runs, 4 of them done" in again.out


@pytest.mark.parametrize(
    ("name", "arms", "seeds", "told"),
    [
        ("confidence", "unpaid,rlcr", "0", "ECE before RL"),
        ("inverted_u", "hard,ten_hard", "0", "completion length"),
        ("one_sample", "medium,problem_1", "0", "groups without signal"),
        ("one_change", "medium,medium_narrow,hard_groups_of_16", "0", "pass@1, hard"),
        ("selection", "fb_long,fb_short", "0,1", "pass@1 before RL, inversion"),
        ("features_by_band", "medium,hard", "0", "features of its own"),
        ("reformulation", "none,all", "0", "pass@1, inversion"),
        ("reformulation_medium", "none,third", "0", "pass@1, evaluation"),
        ("composition", "two_chains,more_chains", "0", "groups without signal"),
        (
            *("composition_new_seeds", "two_chains_large,more_chains_large", "5"),
            "groups without signal",
        ),
        ("rfgo", "grpo,both", "0", "groups without signal"),
    ],
)
def test_the_papers_experiments_run_reduced(command, name, arms, seeds, told, tmp_path):
    ended = command.run(
        f"--config={ROOT}/configs/paper/{name}.py",
        f"--workdir={tmp_path}",
        f"--arms={arms}",
        f"--seeds={seeds}",
        "--reduced",
        f"--parallel={len(seeds.split(','))}",
        module="rlvr_jax.experiment",
    )
    assert ended.code == 0, ended.err
    table = (tmp_path / "result/table.md").read_text()
    assert "- REDUCED" in table
    # ten_hard is a fork of medium
    num_arms = 3 if name in ("inverted_u", "one_change") else 2
    which = "seeds 0, 1" if seeds == "0,1" else "one seed"
    assert (tmp_path / "log/worker_1.log").exists() == (seeds == "0,1")
    assert f"{num_arms} arms, {which}" in table
    assert f"| {told}" in table


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--arms=plane",), "--arms=plane does not exist; did you mean 'plain'"),
        (("--seeds=7",), "--seeds=7 does not exist; there are 0, 1"),
        (("--reduced",), "recipe.py has no overrides `reduced`"),
        (("--seed=0",), "unknown flag '--seed'; did you mean '--seeds'?"),
    ],
)
def test_unknown_arms_and_seeds_are_refused_before_anything_runs(
    recipe, tmp_path, capsys, args, said
):
    folder = tmp_path / "runs"
    assert main([f"--config={recipe}", f"--workdir={folder}", *args]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert not folder.exists()


def test_a_recipe_without_an_experiment_is_refused_with_the_fix(tmp_path, capsys):
    assert main([f"--config={SMOKE}", f"--workdir={tmp_path}"]) == 2
    err = capsys.readouterr().err
    assert "defines no function get_experiment() -> Experiment" in err
    assert "its get_config() is for another command" in err
