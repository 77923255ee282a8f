"""A command line is understood whole, or refused in one line that names the mend."""

import json
from pathlib import Path

import pytest

from job_jax.command import UsageError, load_config
from job_jax.config_io import override, to_json
from job_jax.schema import iter_fields
from rlvr_jax.config import Config
from rlvr_jax.run.cli import parse

RECIPE = """\
from rlvr_jax.config import Config, TokenizerConfig, TrainConfig
from rlvr_jax.tasks import FilesTask

def get_config():
    return Config(name="seven", train=TrainConfig(steps=7))
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "seven.py"
    path.write_text(RECIPE)
    return path


def _refusal(*argv):
    with pytest.raises(UsageError) as caught:
        parse(argv)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_command_line_is_read_whole(recipe):
    asked = parse(
        [
            f"--config={recipe}",
            "--workdir=runs/a",
            "--stage=train",
            "--dry_run",
            "--config.seed=3",
            "--config.train.optimizer.learning_rate=1e-4",
        ]
    )
    assert asked.config_path == recipe
    assert asked.workdir == Path("runs/a")
    assert asked.stage == "train"
    assert asked.dry_run
    assert asked.config == override(
        load_config(recipe, Config),
        {"seed": "3", "train.optimizer.learning_rate": "1e-4"},
    )
    assert (asked.config.name, asked.config.train.steps) == ("seven", 7)


def test_defaults_run_every_stage(recipe):
    asked = parse([f"--config={recipe}", "--workdir=w"])
    assert (asked.stage, asked.dry_run) == ("all", False)


def test_values_may_follow_after_a_space_and_the_last_one_counts(recipe):
    asked = parse(
        f"--config.mesh.data -1 --config {recipe} --workdir w --config.seed=1 "
        "--config.seed 2 -config.train.steps=9".split()
    )
    assert asked.config.mesh.data == -1
    assert asked.config.seed == 2
    assert asked.config.train.steps == 9


def test_a_dry_run_needs_no_workdir(recipe):
    assert parse([f"--config={recipe}", "--dry_run"]).workdir is None
    for workdir in ([], ["--workdir="]):
        message = _refusal(f"--config={recipe}", *workdir)
        assert message.startswith("--workdir=DIR is missing")


def test_a_resolved_config_is_a_config(recipe, tmp_path):
    config = parse([f"--config={recipe}", "--dry_run", "--config.seed=5"]).config
    record = tmp_path / "config.json"
    record.write_text(json.dumps({"config": to_json(config), "versions": {"jax": "0"}}))
    again = parse([f"--config={record}", "--dry_run"])
    assert again.config == config
    more = parse([f"--config={record}", "--dry_run", "--config.seed=6"])
    assert more.config == override(config, {"seed": "6"})


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "--config.train.setps=5",
            "unknown config key 'train.setps'; did you mean 'train.steps'?",
        ),
        ("--config.train.steps=ten", "train.steps expects an int, got 'ten'"),
        (
            "--config.train.group_size=1",
            "train.group_size=1 leaves a completion nothing to be compared "
            "with, and every advantage is 0; use at least 2",
        ),
        ("--wrkdir=x", "unknown flag '--wrkdir'; did you mean '--workdir'?"),
        ("--dryrun", "unknown flag '--dryrun'; did you mean '--dry_run'?"),
        ("--seed=3", "unknown flag '--seed'; did you mean '--config.seed'?"),
        (
            "--cfg.train.steps=3",
            "unknown flag '--cfg.train.steps'; did you mean '--config.train.steps'?",
        ),
        ("now", "unexpected argument 'now'; write --flag=value"),
        (
            "--stage=tran",
            "flag --stage=tran: value should be one of "
            "<all|sft|difficulty|probe|train|eval|report>",
        ),
        ("--nodry_run=3", "--nodry_run=3 does not take an argument"),
        (
            "--config.train.steps",
            "--config.train.steps needs a value: --config.train.steps=VALUE",
        ),
        ("--workdir", "Missing value for flag --workdir"),
    ],
)
def test_an_argument_that_is_not_understood_is_refused(recipe, argument, message):
    assert _refusal(f"--config={recipe}", "--workdir=w", argument) == message


def test_a_config_must_be_given():
    assert _refusal("--workdir=w").startswith("--config=FILE is missing")


def test_a_missing_file_is_named_with_its_nearest(recipe):
    wrong = recipe.with_name("sven.py")
    message = f"no config file {str(wrong)!r}; did you mean {str(recipe)!r}?"
    assert _refusal(f"--config={wrong}", "--workdir=w") == message
    nowhere = recipe.parent / "nowhere" / "seven.py"
    message = f"no config file {str(nowhere)!r}"
    assert _refusal(f"--config={nowhere}", "--workdir=w") == message
    assert _refusal(f"--config={recipe.parent}", "--workdir=w").startswith(
        "no config f"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.py", "x = 1\n", ": the file defines no function get_config() -> Config"),
        (
            "a.py",
            "get_config = dict\n",
            ": get_config() returned dict, not rlvr_jax.config.run.Config",
        ),
        (
            "a.py",
            "def get_config():\n    pass\n",
            ": get_config() returned NoneType, not rlvr_jax.config.run.Config",
        ),
        (
            "a.py",
            "def get_config(size):\n    pass\n",
            ": TypeError: get_config() missing 1 required positional argument: 'size'",
        ),
        ("a.py", "import os\nx = (\n", ":2: SyntaxError: '(' was never closed"),
        (
            "a.py",
            "def get_config():\n    return Config()\n",
            ":2: NameError: name 'Config' is not defined",
        ),
        ("a.py", "raise ValueError('a\\nb')\n", ":1: ValueError: a b"),
        (
            "a.py",
            RECIPE.replace("steps=7", "setps=7"),
            ":5: TrainConfig has no field 'setps'; did you mean 'steps'?",
        ),
        (
            "a.py",
            RECIPE.replace("steps=7", "steps=-7"),
            ":5: steps=-7; it must be at least 0",
        ),
        ("a.json", "{", ": Expecting property name enclosed in double quotes: line 1 "),
        ("a.json", "{}", ": no config under the key 'config'"),
        ("a.json", "3", ": no config under the key 'config'"),
        ("a.json", '{"config": {}}', ": config key 'name' is missing"),
        (
            "a.json",
            '{"config": {"nam": 1}}',
            ": unknown config key 'nam'; did you mean ",
        ),
        ("a.yaml", "name: a", " is neither a Python file (.py) nor a config.json"),
    ],
)
def test_a_file_that_is_no_config_is_refused(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    said = _refusal(f"--config={path}", "--workdir=w")
    assert said.startswith(f"{path}{message}")


def test_help_names_every_flag_and_every_field(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--help", "--config.train.setps=3"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--config ", "--workdir", "--stage", "--dry_run", "--help"):
        assert f"\n  {flag}" in text
    for path, _, _ in iter_fields(Config()):
        assert f"\n  --config.{path}=" in text
    assert "--config.task.record.answer_prefix='####'" in text
    lines = {
        line.split()[0]: line.split(maxsplit=1)[-1]
        for line in text.splitlines()
        if line
    }
    assert (
        lines["--config.train.steps=200"] == "int; must be at least 0; rollout batches"
    )
    assert lines["--config.eval.k="].startswith("tuple of int; must hold ks of at")
    assert lines["--config.model.remat=none"] == (
        "one of none, block, dots; what backward recomputes"
    )
