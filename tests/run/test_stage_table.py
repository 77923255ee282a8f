"""The list of stages that a run begins with."""

import dataclasses
import json

from job_jax.files import write_json
from rlvr_jax.config import Config, DifficultyConfig, SFTConfig, TrainConfig
from rlvr_jax.run.stage_table import STAGES, describe_pending, is_finished
from rlvr_jax.run.workdir import DIFFICULTY_FILE, Workdir

CONFIG = Config(
    sft=SFTConfig(steps=20),
    difficulty=DifficultyConfig(num_samples=2),
    train=TrainConfig(steps=100),
)


def plan(workdir, config=CONFIG, stages=tuple(STAGES), ends_with=("report",)):
    pending = [
        name for name in stages if not is_finished(name, config=config, workdir=workdir)
    ]
    return describe_pending(
        pending, config=config, workdir=workdir, ends_with=ends_with
    )


def finish_step(workdir, stage, step):
    """Leaves a checkpoint that `job_jax.files.latest_step` takes for complete."""
    (workdir.checkpoints / stage / str(step)).mkdir(parents=True)


def test_a_new_run_does_every_stage_that_its_recipe_has(tmp_path):
    workdir = Workdir(tmp_path, CONFIG)
    line = "stages to do: sft (20 steps), difficulty, train (100 steps), eval, report"
    assert plan(workdir) == line
    short = dataclasses.replace(
        CONFIG, sft=SFTConfig(steps=0), difficulty=DifficultyConfig()
    )
    line = "stages to do: train (100 steps), eval, report"
    assert plan(Workdir(tmp_path / "short", short), short) == line


def test_a_stage_by_itself_is_listed_by_itself(tmp_path):
    workdir = Workdir(tmp_path, CONFIG)
    line = "stages to do: difficulty"
    assert plan(workdir, stages=("difficulty",), ends_with=()) == line


def test_a_run_that_goes_on_lists_what_is_done_and_the_steps_that_are_left(tmp_path):
    workdir = Workdir(tmp_path, CONFIG)
    finish_step(workdir, "sft", 20)
    finish_step(workdir, "train", 40)
    summary = {"stages": {"sft": 1.0}, "difficulty": {}}
    write_json(workdir.path / "summary.json", summary)
    (workdir.path / DIFFICULTY_FILE).write_text(json.dumps({}) + "\n")
    assert plan(workdir) == (
        "done before: sft, difficulty; stages to do: train (60 of 100 steps), eval, "
        "report"
    )
