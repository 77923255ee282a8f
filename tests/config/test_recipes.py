"""Recipes load, and each has the name of its file."""

import dataclasses
import json
import pathlib
import runpy

import pytest

import rlvr_jax.config
import sae_jax.config
from job_jax.command import call_recipe, load_config
from job_jax.config_io import override, to_json
from job_jax.flags import UsageError
from rlvr_jax.config import Experiment
from rlvr_jax.experiment.schedule import check_runs, plan_runs
from rlvr_jax.types import Problem

_ROOT = pathlib.Path(__file__).parents[2]
_RECIPES = sorted((_ROOT / "configs").glob("*.py"))
_EXPERIMENTS = sorted((_ROOT / "configs/paper").rglob("*.py"))


@pytest.mark.parametrize("path", _RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_under_its_own_name(path):
    package = sae_jax if path.stem.startswith("tsae_") else rlvr_jax
    assert load_config(path, package.config.Config).name == path.stem


def test_a_recipe_loads_in_python_by_what_the_command_line_takes(tmp_path, monkeypatch):
    """By its name in any folder, by a path, and from the record of a run."""
    load = rlvr_jax.load_recipe
    monkeypatch.chdir(tmp_path)
    smoke = load("smoke")
    assert smoke == load(_ROOT / "configs/smoke.py")
    assert smoke.name == "smoke"
    seed_5 = {"config": to_json(dataclasses.replace(smoke, seed=5))}
    (tmp_path / "config.json").write_text(json.dumps(seed_5))
    assert load("config.json") == dataclasses.replace(smoke, seed=5)
    with pytest.raises(UsageError, match="file 'smokee'; did you mean 'smoke'"):
        load("smokee")
    with pytest.raises(UsageError, match=r"tsae_quickstart\.py.* not rlvr_jax\."):
        load("tsae_quickstart")


@pytest.mark.parametrize("path", _EXPERIMENTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("is_reduced", [False, True])
def test_every_experiment_is_one_of_its_recipe(path, is_reduced, tmp_path):
    config = load_config(path, rlvr_jax.config.Config)
    assert config.name == path.stem
    experiment = call_recipe(path, "get_experiment", Experiment)
    arms, seeds = [*experiment.arms], experiment.seeds
    check_runs(
        config,
        experiment,
        plan_runs(
            experiment, path, tmp_path, arms=arms, seeds=seeds, is_reduced=is_reduced
        ),
    )
    assert len(seeds) >= 5


@pytest.mark.parametrize("path", _EXPERIMENTS, ids=lambda path: path.stem)
def test_every_arm_differs_from_every_other(path):
    """In its start or in its config: a control is not its treatment once more."""
    config = load_config(path, rlvr_jax.config.Config)
    arms = call_recipe(path, "get_experiment", Experiment).arms
    runs = {
        json.dumps([arm.start, to_json(override(config, arm.overrides))])
        for arm in arms.values()
    }
    assert len(runs) == len(arms)


@pytest.mark.parametrize("path", _EXPERIMENTS, ids=lambda path: path.stem)
def test_reduced_arms_split_their_updates_over_two_devices(path):
    experiment = call_recipe(path, "get_experiment", Experiment)
    config = load_config(path, rlvr_jax.config.Config)
    for name, arm in experiment.arms.items():
        changes = {**arm.overrides, **experiment.reduced}
        train = override(config, changes).train
        assert train.groups_per_micro_batch % 2 == 0, name


def test_the_quickstart_holds_what_is_known_half_known_and_beyond():
    """SFT shows lengths worked directly, by a coin toss, or never."""
    config = load_config(_ROOT / "configs/quickstart.py", rlvr_jax.config.Config)
    task = config.task
    sft, asked = set(task.sft.chain_lengths), set(task.train.chain_lengths)
    direct = set(task.sft.direct_lengths)
    assert asked & direct  # easy
    assert asked & (sft - direct)  # medium
    assert asked - sft  # hard
    assert sft - asked  # prior capability: RL must not unlearn it
    assert set(task.eval.chain_lengths) == sft | asked
    assert config.difficulty.num_samples > 0
    assert set(config.curriculum.bands) == {"easy", "medium", "hard"}
    # The limits leave room for every answer: a trace of n steps has 6 n + 5 tokens.
    longest = 6 * max(asked) + 5
    assert longest <= config.train.sampling.max_new_tokens
    assert longest <= config.eval.sampling.max_new_tokens
    # A guess is right one time in p, so problems that are only guessed must be hard.
    assert 1 / task.modulus < config.difficulty.hard_below < 1 / 2


@pytest.mark.parametrize(
    ("completion", "paid"),
    [
        ("forward : p e0 + e2 = e2 q e2 * e1 = e2 answer e2", 1.0),
        ("forward : p e0 + e2 = e2 q e2 * e1 = e2 answer e1", 0.0),  # exploited by RL
        ("forward : p e0 + e2 = e1 q e1 * e1 = e1 answer e1", 0.0),  # a wrong step
        ("forward : p e1 + e2 = e0 q e0 * e1 = e0 answer e0", 0.0),  # another start
        ("backward : q e2 / e1 = e2 p e2 - e2 = e0 answer e2", 0.0),  # a guess
        ("forward : p e0 + e2 = e2 answer e2", 0.0),
        ("forward : p e0 + e2 = e2 q e2 * e1 = e2", 0.0),
        ("answer e2", 0.0),
        ("", 0.0),
    ],
)
def test_the_own_reward_pays_for_steps_that_lead_to_the_answer_alone(completion, paid):
    shown = runpy.run_path(str(_ROOT / "configs/own_reward.py"))["shown"]
    prompt = "evaluate : e0 p + e2 q * e1 = ?"
    problem = Problem(id="", prompt=prompt, gold="e2", verifier="", source="")
    assert shown(problem, completion) == paid
