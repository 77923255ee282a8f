"""A command line is understood whole, or refused in one line that names the fix."""

import gc
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from job_jax.command import load_config
from job_jax.config_io import override, to_json
from job_jax.flags import UsageError
from job_jax.schema import iter_fields
from rlvr_jax.config import Config
from rlvr_jax.main import main
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
    assert not asked.verbose
    assert asked.config == override(
        load_config(recipe, Config),
        {"seed": "3", "train.optimizer.learning_rate": "1e-4"},
    )
    assert (asked.config.name, asked.config.train.steps) == ("seven", 7)


def test_programs_require_compile_only(recipe):
    asked = [f"--config={recipe}", "--topology=v5e:2x2", "--programs=update,sampler"]
    assert parse([*asked, "--compile_only"]).programs == ("update", "sampler")
    assert _refusal(*asked, "--dry_run") == ("--programs needs --compile_only; add it")


def test_verbose_needs_a_dry_run(recipe):
    asked = [f"--config={recipe}", "--workdir=w", "--verbose"]
    assert parse([*asked, "--dry_run"]).verbose
    assert _refusal(*asked) == "--verbose needs --dry_run; add it"


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
            "train.group_size=1 leaves nothing to compare a completion with, "
            "so every advantage is 0; use at least 2",
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
            "--stage='tran'; it must be one of "
            "all, sft, difficulty, probe, train, eval, report",
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


def test_a_directory_is_no_config_and_names_the_files_in_it(recipe):
    folder = recipe.parent
    recipe.with_name("another.py").write_text("x = 1")
    said = f"--config={str(folder)!r} is a directory; give one file"
    argv = f"--config={folder}", "--workdir=w"
    assert _refusal(*argv) == f"{said}, such as {str(recipe)!r}"
    recipe.rename(folder / "config.json")
    assert _refusal(*argv) == f"{said}, such as {str(folder / 'config.json')!r}"
    (folder / "config.json").unlink()
    assert _refusal(*argv) == f"{said} with get_config()"


def _refusals(*argv):
    """Returns the lines that refuse a command line, all at once."""
    with pytest.raises(UsageError) as caught:
        parse(argv)
    return str(caught.value).splitlines()


def test_all_that_is_wrong_is_named_at_once(recipe):
    assert _refusals(
        f"--config={recipe}",
        "--stage=tran",
        "--config.train.setps=5",
        "--config.train.steps=ten",
        "--config.seed=-1",
        "--wrkdir=x",
        "now",
        "--nodry_run=3",
    ) == [
        "--nodry_run=3 does not take an argument",
        "--stage='tran'; it must be one of "
        "all, sft, difficulty, probe, train, eval, report",
        "unknown flag '--wrkdir'; did you mean '--workdir'?",
        "unexpected argument 'now'; write --flag=value",
        "unknown config key 'train.setps'; did you mean 'train.steps'?",
        "train.steps expects an int, got 'ten'",
        "seed=-1; it must lie within 0..2**32-1",
    ]


def test_a_bad_value_behind_a_space_is_taken_out_with_its_flag(recipe):
    argv = ["--stage", "tran", "--stage", "evil", "--workdir", "w", "--config"]
    found = _refusals(*argv, str(recipe), "--config.seed=x")
    assert [line.partition(";")[0] for line in found] == [
        "--stage='evil'",  # the last one counts
        "seed expects an int, got 'x'",
    ]


def test_without_a_config_the_other_faults_are_reported(recipe):
    assert _refusals(
        "--compile_only", "--topology=v5e:2x2", "--dry_run", "--seed=1"
    ) == [
        "unknown flag '--seed'; did you mean '--config.seed'?",
        "--topology needs exactly one of --compile_only and --dry_run; add one",
        "--config=FILE is missing, for example --config=quickstart",
    ]
    broken = recipe.with_name("broken.py")
    broken.write_text("raise ValueError('a')")
    assert _refusals(f"--config={broken}", "--config.seed=x") == [
        "--workdir=DIR is missing; name the directory of the run",
        f"{broken}:1: ValueError: a",
    ]


def test_conflicts_between_fields_are_reported_once_each_is_valid(recipe):
    argv = [f"--config={recipe}", "--workdir=w", "--config.train.num_minibatches=7"]
    (together,) = _refusals(*argv)
    assert "num_minibatches=7" in together
    (alone,) = _refusals(*argv, "--config.train.steps=ten")
    assert alone == "train.steps expects an int, got 'ten'"
    other, same = _refusals(*argv, "--nope=1")
    assert other.startswith("unknown flag '--nope'")
    assert same == together


def test_each_error_is_a_separate_line_on_stderr(recipe, capsys):
    assert main([f"--config={recipe}", "--stage=tran", "--config.seed=x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: ") for line in lines)


def test_a_command_line_is_refused_before_anything_heavy_is_loaded(recipe):
    """Even before JAX: parsing flags should take less than a second."""
    heavy = ("flax", "grain", "matplotlib", "optax", "orbax", "scipy", "transformers")
    code = (
        "import sys; from rlvr_jax.main import main; "
        f"code = main(['--config={recipe}', '--stage=tran', '--config.seed=x']); "
        f"print(code, sorted(set({heavy}) & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2 []\n"


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
        ("a.json", '{"config": {}}', ": config is empty"),
        (
            "a.json",
            '{"config": {"nam": 1}}',
            ": unknown config key 'nam'; did you mean ",
        ),
        ("a.yaml", "name: a", " is neither a Python file (.py) nor a config.json"),
    ],
)
def test_a_file_without_a_config_is_refused(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    said = _refusal(f"--config={path}", "--workdir=w")
    assert said.startswith(f"{path}{message}")


def test_help_names_every_flag_and_every_field(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--help", "--config.train.setps=3"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in (
        "--config ",
        "--workdir",
        "--stage",
        "--dry_run",
        "--verbose",
        "--help",
    ):
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
        "one of none, block, dots; recomputed in the backward pass"
    )


@pytest.fixture
def collecting():
    """Tests run without the collector."""
    gc.enable()
    yield
    gc.disable()


def test_the_collector_runs_on_and_skips_what_was_loaded(
    collecting, monkeypatch, tmp_path
):
    load = importlib.import_module("rlvr_jax.main")._load
    (tmp_path / "many_lists.py").write_text("LISTS = [[] for _ in range(12_345)]")
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.get_freeze_count()
    assert len(load("many_lists").LISTS) == 12_345
    assert gc.get_freeze_count() >= before + 12_345
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        load("broken")
    assert gc.isenabled()
    # It is loaded already, so what was made since then is collected as usual.
    before, made = gc.get_freeze_count(), [[] for _ in range(12_345)]
    load("many_lists")
    assert gc.get_freeze_count() < before + len(made)
