"""The runs of an experiment, and which of them have ended."""

import dataclasses
import json
import pathlib

import pytest

from job_jax.flags import UsageError
from rlvr_jax.config import Arm, Config, Experiment
from rlvr_jax.experiment.schedule import check_runs, describe_plan, plan_runs

EXPERIMENT = Experiment(
    question="Which?",
    reference="a paper",
    arms={
        "plain": Arm(),
        "hard": Arm(
            overrides={
                "curriculum.name": "band",
                "curriculum.difficulty_source": "online",
            }
        ),
        "back": Arm(start="b", overrides={"train.steps": "7"}),
    },
    starts={"start": {}, "b": {"sft.steps": "9"}},
    baseline="plain",
    outcomes=("pass@1",),
    seed_sd=10.0,
    seed_sd_source="a guess",
    seeds=(0, 1),
    reduced={"train.steps": "2", "eval.num_problems": "4"},
)


def plan(folder, *, arms=("plain", "hard", "back"), seeds=(0, 1), is_reduced=False):
    recipe = pathlib.Path("recipe.py")
    return plan_runs(
        EXPERIMENT, recipe, folder, arms=arms, seeds=seeds, is_reduced=is_reduced
    )


def test_each_seed_begins_with_the_starts_of_its_arms(tmp_path):
    assert [(run.name, run.seed) for run in plan(tmp_path)] == [
        (name, seed)
        for seed in (0, 1)
        for name in ("start", "b", "plain", "hard", "back")
    ]
    start, _, _, hard, back = plan(tmp_path)[:5]
    assert start.arguments == [
        "--config=recipe.py",
        f"--workdir={tmp_path}/start/seed_0",
        "--stage=sft",
        "--config.seed=0",
    ]
    assert hard.arguments == [
        "--config=recipe.py",
        f"--workdir={tmp_path}/hard/seed_0",
        "--stage=all",
        f"--continue_from={tmp_path}/start/seed_0@sft",
        "--config.curriculum.name=band",
        "--config.curriculum.difficulty_source=online",
        "--config.seed=0",
    ]
    # The overrides of its start also apply to an arm.
    assert f"--continue_from={tmp_path}/b/seed_0@sft" in back.arguments
    assert {"--config.sft.steps=9", "--config.train.steps=7"} <= {*back.arguments}


def test_an_arm_without_a_start_begins_as_the_recipe_does(tmp_path):
    alone = dataclasses.replace(
        EXPERIMENT, arms={"plain": Arm(start="")}, starts={}, seeds=(3,)
    )
    recipe = pathlib.Path("recipe.py")
    (run,) = plan_runs(
        alone, recipe, tmp_path, arms=("plain",), seeds=(3,), is_reduced=False
    )
    assert run.arguments == [
        "--config=recipe.py",
        f"--workdir={tmp_path}/plain/seed_3",
        "--stage=all",
        "--config.seed=3",
    ]


def test_some_arms_need_some_starts_and_reduced_runs_are_all_reduced(tmp_path):
    runs = plan(tmp_path, arms=("back",), seeds=(1,), is_reduced=True)
    assert [(run.name, run.seed) for run in runs] == [("b", 1), ("back", 1)]
    for run in runs:
        assert run.overrides["train.steps"] == "2"  # not the arm's 7
        assert run.overrides["eval.num_problems"] == "4"


def test_arms_read_what_their_start_has_made(tmp_path):
    probed = dataclasses.replace(
        EXPERIMENT,
        arms={"plain": Arm(overrides={"probe.sae_path": "{start}/sae"})},
        start_stages=("sft", "difficulty", "probe"),
    )
    recipe = pathlib.Path("recipe.py")
    *stages, arm = plan_runs(
        probed, recipe, tmp_path, arms=("plain",), seeds=(1,), is_reduced=False
    )
    assert [run.stage for run in stages] == ["sft", "difficulty", "probe"]
    assert {run.workdir for run in stages} == {tmp_path / "start/seed_1"}
    assert arm.overrides["probe.sae_path"] == f"{tmp_path}/start/seed_1/sae"


FORKED = dataclasses.replace(
    EXPERIMENT,
    arms={
        "plain": Arm(start="b@0"),
        "hard": Arm(start="b@0", overrides={"train.batch_size": "4"}),
        "visit": Arm(
            start="plain@40", overrides={"train.steps": "50", "eval.num_problems": "9"}
        ),
        "back": Arm(start="visit@50", overrides={"train.steps": "80"}),
    },
)


def test_a_fork_copies_its_parent_and_then_follows_the_recipe(tmp_path):
    recipe = pathlib.Path("recipe.py")
    b, plain, visit, back = plan_runs(
        FORKED, recipe, tmp_path, arms=("back",), seeds=(1,), is_reduced=False
    )
    assert [run.name for run in (b, plain, visit, back)] == [
        "b",
        "plain",
        "visit",
        "back",
    ]
    assert [argv[2:] for argv in plain.commands] == [
        [
            "rlvr_jax.fork",
            f"--run={tmp_path}/b/seed_1@0",
            f"--workdir={tmp_path}/plain/seed_1",
        ],
        ["rlvr_jax.main", *plain.arguments],
    ]
    made, went_on = (argv[2:] for argv in back.commands)
    assert made == [
        "rlvr_jax.fork",
        f"--run={tmp_path}/visit/seed_1@50",
        f"--workdir={tmp_path}/back/seed_1",
        "--config.train.steps=80",
    ]
    # The recipe with all changes of its ancestors, and no run to take SFT from.
    assert sorted(went_on) == [
        "--config.eval.num_problems=9",
        "--config.seed=1",
        "--config.sft.steps=9",
        "--config.train.steps=80",
        "--config=recipe.py",
        "--stage=all",
        f"--workdir={tmp_path}/back/seed_1",
        "rlvr_jax.main",
    ]
    assert back.command.count("python -m rlvr_jax.") == 2
    assert " && python -m rlvr_jax.main " in back.command
    back.workdir.mkdir(parents=True)  # cut after it was made
    assert [argv[2:] for argv in back.commands] == [went_on]


def test_a_fork_does_not_change_reduced_settings(tmp_path):
    *_, back = plan_runs(
        dataclasses.replace(FORKED, reduced={"train.steps": "60", "sft.steps": "2"}),
        pathlib.Path("recipe.py"),
        tmp_path,
        arms=("back",),
        seeds=(0,),
        is_reduced=True,
    )
    assert back.fork.changes == {}
    assert back.overrides["train.steps"] == "60"
    assert back.overrides["sft.steps"] == "2"


STALE = {"train.staleness": "1", "train.loss.tis_cap": "2"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        (
            {"checkpoint.every": "30"},
            "plain@40: this run keeps checkpoints of RL steps 60, ",
        ),
        (
            {"checkpoint.every": "20"},
            "plain@40: this run keeps checkpoints of RL steps 60, ",
        ),
        (
            {"checkpoint.max_to_keep": "1"},
            "plain@40: this run keeps checkpoints of RL steps",
        ),
        (STALE, "visit: train.staleness=1: later steps"),
    ],
)
def test_forks_are_checked_before_anything_runs(tmp_path, changed, said):
    parent = Arm(overrides={"train.steps": "80", "checkpoint.every": "40", **changed})
    forked = dataclasses.replace(
        FORKED,
        arms={
            "plain": parent,
            "visit": Arm(start="plain@40", overrides={"train.steps": "50"}),
        },
    )
    runs = plan_runs(
        forked,
        pathlib.Path("recipe.py"),
        tmp_path,
        arms=("visit",),
        seeds=(0,),
        is_reduced=False,
    )
    if said is None:
        check_runs(Config(), forked, runs)
        return
    with pytest.raises(UsageError) as caught:
        check_runs(Config(), forked, runs)
    assert said in str(caught.value)


def test_a_fork_of_before_rl_may_not_change_what_was_before_it(tmp_path):
    runs = plan_runs(
        FORKED,
        pathlib.Path("recipe.py"),
        tmp_path,
        arms=("hard",),
        seeds=(0,),
        is_reduced=False,
    )
    with pytest.raises(UsageError, match=r"hard: train\.batch_size: 16 -> 4"):
        check_runs(Config(), FORKED, runs)


def test_a_run_has_ended_when_what_it_makes_is_there(tmp_path):
    start, arm = plan(tmp_path, arms=("plain",), seeds=(0,))
    assert not start.has_ended()
    assert not arm.has_ended()
    for run, summary in (
        (start, {"stages": {}}),
        (arm, {"stages": {"train": 3.0}, "eval": {"before": {}}}),
    ):
        run.workdir.mkdir(parents=True)
        (run.workdir / "summary.json").write_text(json.dumps(summary))
        assert not run.has_ended()
    for run, summary in (
        (start, {"stages": {"sft": 4.0}}),
        (arm, {"eval": {"after": {}}}),
    ):
        (run.workdir / "summary.json").write_text(json.dumps(summary))
        assert run.has_ended()


def test_the_plan_prints_the_question_the_power_and_if_asked_every_command(tmp_path):
    told = describe_plan(EXPERIMENT, plan(tmp_path), with_commands=True)
    assert told.startswith("Which? (a paper)")
    # Two seeds: 11.55 standard deviations of 10.
    assert "2 seeds detect a difference of 115.5 with 80 % power" in told
    assert "10 runs, 0 of them done" in told
    assert told.count("python -m rlvr_jax.main --config=recipe.py") == 10
    short = describe_plan(EXPERIMENT, plan(tmp_path), with_commands=False)
    assert short.splitlines()[:2] == told.splitlines()[:2]
    assert short.endswith("10 runs, 0 of them done; --dry_run prints the commands")


def test_one_seed_has_no_power(tmp_path):
    lone = dataclasses.replace(EXPERIMENT, seeds=(0,))
    told = describe_plan(lone, plan(tmp_path, seeds=(0,)), with_commands=False)
    assert "one seed cannot separate a difference from the variation" in told
    # Runs of another day count: the seeds are the experiment's.
    told = describe_plan(EXPERIMENT, plan(tmp_path, seeds=(0,)), with_commands=False)
    assert "2 seeds detect" in told


def test_overrides_are_checked_before_anything_runs(tmp_path):
    check_runs(Config(), EXPERIMENT, plan(tmp_path))
    recipe = pathlib.Path("recipe.py")
    wrong = Experiment(
        question="q",
        reference="r",
        arms={
            "plain": Arm(overrides={"train.stepz": "1"}),
            "other": Arm(overrides={"train.steps": "many"}),
            "third": Arm(overrides={"train.minibatches": "7"}),
        },
        baseline="plain",
        outcomes=("pass@8, hard", "pass@1 gianed, inversion"),
        seed_sd=0.1,
        seed_sd_source="s",
    )
    runs = plan_runs(
        wrong, recipe, tmp_path, arms=[*wrong.arms], seeds=(0,), is_reduced=False
    )
    with pytest.raises(UsageError) as caught:
        check_runs(Config(), wrong, runs)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "outcomes: 'pass@1 gianed, inversion' is not a measure that runs are "
        "compared in; did you mean 'pass@k gained'?"
    )
    assert lines[1].startswith("plain: unknown config key")
    assert lines[2].startswith("other: train.steps")
    assert lines[3].startswith("third: ")
    assert len(lines) == 4
