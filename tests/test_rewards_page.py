"""docs/use/rewards.md: the page's own code, as a user would paste it."""

import pathlib
import re
import shlex
import sys

import pytest

from job_jax.calls import CallLimits
from job_jax.config_io import override
from job_jax.schema import iter_fields
from rlvr_jax import load_recipe
from rlvr_jax.config import Config, VerifierConfig
from rlvr_jax.config.rewards import REWARDS
from rlvr_jax.rewards.function import call_reward
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.grader import Grader

_ROOT = pathlib.Path(__file__).parents[1]
_PAGE = (_ROOT / "docs/use/rewards.md").read_text()
PROBLEMS = [
    Problem(
        id=name,
        prompt="p",
        gold="x y",
        verifier="checked:Checked",
        source="",
        fields={"lo": 3, "hi": 9, "answer": "y"},
    )
    for name in "aaa"
]
TEXTS = ["x y", "x x", "x y"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The page's files in a user's folder, from which Python imports."""
    for block in re.findall(r"```python\n(.*?)```", _PAGE, flags=re.DOTALL):
        name = block.split()[1]
        (tmp_path / name).write_text(block)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("tidy:no_repeats", [1.0, 0.0, 1.0]),
        ("service:scored", [1 / 4] * 3),  # the prompt's word and two more
        ("rare:rarity", [0.5, 1.0, 0.5]),
        ("trl:theirs:format_reward", [1.0, 0.0, 1.0]),
        ("verl:theirs:compute_score", [1.0, 0.0, 1.0]),
    ],
)
@pytest.mark.usefixtures("mine")
def test_the_rewards_of_the_page_score(name, scores):
    limits = CallLimits(timeout_s=60.0, concurrency=2)
    outcomes = call_reward(name, REWARDS.load(name), PROBLEMS, TEXTS, limits)
    assert [outcome.value for outcome in outcomes] == scores


@pytest.mark.usefixtures("mine")
def test_the_reward_of_the_page_reads_columns():
    function = REWARDS.load("ranged:in_range")
    texts = ["no", "2", "0 or 3", "it is 9", "10"]
    assert [function(PROBLEMS[0], text) for text in texts] == [0, 0, 1, 1, 0]


@pytest.mark.usefixtures("mine")
def test_the_verifier_of_the_page_grades():
    with Grader(VerifierConfig(timeout_s=0.001)) as grader:  # its own limit counts
        verdicts = grader(PROBLEMS, TEXTS)
    assert [v.status for v in verdicts] == ["correct", "incorrect", "correct"]


@pytest.mark.usefixtures("mine")
def test_its_commands_are_accepted():
    commands = re.findall(r"python -m rlvr_jax.main (.*?)\n(?!    )", _PAGE, re.DOTALL)
    assert len(commands) == 2
    for command in commands:
        flags = dict(
            flag.split("=", 1) for flag in shlex.split(command.replace("\\\n", " "))
        )
        config = load_recipe(flags.pop("--config"))
        flags.pop("--workdir")
        changes = {k.removeprefix("--config."): v for k, v in flags.items()}
        assert len(override(config, changes).train.reward.names) == 2


def test_its_tables_name_the_fields_and_defaults_of_the_config():
    defaults = {path: value for path, _, value in iter_fields(Config())}
    stated = re.findall(r"^\| `([\w.]+)` \| (\d+) \|", _PAGE, re.MULTILINE)
    assert len(stated) == 5
    for path, default in stated:
        assert defaults[path] == float(default)
    judged = _PAGE.split("| field of `judge` |")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z_]+)`", judged))
    fields = {path for path in defaults if path.startswith("judge.")}
    assert {path.removeprefix("judge.") for path in fields} - {"url", "model"} <= named
