"""docs/use/train_from_hub.md: its files and its commands, on a tiny hub model."""

import pathlib
import re
import runpy
import shlex

import pytest

from rlvr_jax import convert, generate, main
from rlvr_jax.models import load_hf
from rlvr_jax.rollouts import __main__ as rollouts
from rlvr_jax.run.checkpoint_settings import settle_config
from rlvr_jax.tasks.records.layout import ANSWER_REQUESTS, PLAIN_PROMPT
from tests.support.checkpoints import write_checkpoint

_PAGE = (pathlib.Path(__file__).parents[1] / "docs/use/train_from_hub.md").read_text()
_COMMANDS = {
    "rlvr_jax.convert": convert.main,
    "rlvr_jax.generate": generate.main,
    "rlvr_jax.main": main.main,
    "rlvr_jax.rollouts": rollouts.main,
}
# These only make the run short.
_SHORT = [
    f"--config.{setting}"
    for setting in (
        "mesh.cpu_devices=8",
        "train.steps=1",
        "log.rollouts_every=1",
        "eval.num_problems=8",
        "eval.num_samples=2",
        "eval.batch_size=8",
        "eval.bootstrap_resamples=50",
    )
]


def blocks(language):
    """Returns the page's blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", _PAGE, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the page's files and the model that the page downloads."""
    download, *_ = blocks("bash")
    place = re.fullmatch(r"hf download \S+ --local-dir (\S+)\n", download)[1]
    write_checkpoint(tmp_path / place)
    for source in blocks("python"):
        (tmp_path / source.split()[1]).write_text(source)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("make_sums.py", run_name="__main__")
    return tmp_path


def test_the_recipe_of_the_page_prompts_as_the_page_says(folder):
    """Only the problem, in the model's chat; no sum is in both train and eval."""
    config = settle_config(runpy.run_path("sums.py")["get_config"]())
    record = config.task.record
    assert (record.chat_template, record.prompt_template) == ("tokenizer", "{prompt}")
    task = config.task.with_chat_template("{{ messages[0].content }}")
    sides = [task.problems(side, seed=0) for side in ("train", "eval")]
    assert [len(side) for side in sides] == [144, 36]
    learned, measured = ({one.prompt for one in side} for side in sides)
    assert not learned & measured
    assert "What is 2 + 2?" in learned | measured
    for request in filter(None, ANSWER_REQUESTS.values()):
        assert f"`{request}`" in _PAGE
    first, last = PLAIN_PROMPT.replace("{prompt}", "PROBLEM").split("\n")
    assert f"`{first}`, then `{last}` on a new line" in _PAGE


def test_each_command_of_the_page_does_what_it_says(folder, capsys, restored_signals):
    said = {}
    for line in "".join(blocks("bash")).splitlines():
        python, *argv = shlex.split(line)
        if python == "hf" or argv == ["make_sums.py"]:
            continue  # done by the folder
        _, module, *argv = argv
        more = _SHORT if module == "rlvr_jax.main" else []
        assert _COMMANDS[module]([*argv, *more]) == 0, capsys.readouterr().err
        said[module, "--dry_run" in argv] = capsys.readouterr().out
    assert "train prompt 2, " in said["rlvr_jax.main", True]
    assert "report: runs/sums/report/index.html" in said["rlvr_jax.main", False]
    assert said["rlvr_jax.generate", False].count("prompt: ") == 2
    assert "completion" in said["rlvr_jax.rollouts", False]
    assert load_hf(folder / "out/sums").config.num_layers == 1
