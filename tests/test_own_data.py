"""docs/use/own_data.md: its files and its commands, as written but shorter runs."""

import io
import pathlib
import re
import runpy
import shlex
import sys

import pytest

from rlvr_jax import main, verify
from rlvr_jax.analysis import __main__ as analysis
from rlvr_jax.rollouts import __main__ as rollouts

_PAGE = pathlib.Path(__file__).parents[1] / "docs/use/own_data.md"
_COMMANDS = {
    "rlvr_jax.main": main.main,
    "rlvr_jax.analysis": analysis.main,
    "rlvr_jax.rollouts": rollouts.main,
}
# These make the runs short; the rest is as the page says.
_SHORT = [
    f"--config.{setting}"
    for setting in (
        "mesh.cpu_devices=8",
        "model.num_layers=1",
        "model.hidden_size=16",
        "model.intermediate_size=16",
        "model.num_heads=1",
        "model.num_kv_heads=1",
        "sft.steps=3",
        "train.steps=2",
        "log.rollouts_every=1",
        "difficulty.num_samples=1",
        "difficulty.pool_size=64",
        "eval.batch_size=64",
        "eval.num_samples=2",
        "eval.k=1,2",
        "eval.bootstrap_resamples=50",
    )
]


def blocks(language):
    """Returns the page's blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)


def commands():
    """Returns the page's command lines, in order."""
    return [line for block in blocks("bash") for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with the page's files, as the current directory."""
    for source in blocks("python"):
        (tmp_path / source.split()[1]).write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run(line, monkeypatch):
    """Runs a command line of the page in this process."""
    if line.startswith("echo "):
        given, _, command = line.partition(" | ")
        assert command == "python -m rlvr_jax.verify"
        stdin = io.TextIOWrapper(io.BytesIO(shlex.split(given)[1].encode()))
        with monkeypatch.context() as patch:
            patch.setattr(verify, "open", lambda *_, **__: stdin.buffer, raising=False)
            assert verify.main([]) == 0
        return
    python, *argv = shlex.split(line)
    assert python == "python"
    if argv[0] != "-m":
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", argv)
            runpy.run_path(argv[0], run_name="__main__")
        return
    _, module, *argv = argv
    more = _SHORT if module == "rlvr_jax.main" else []
    assert _COMMANDS[module]([*argv, *more]) == 0


def test_each_command_of_the_page_does_what_it_says(
    folder, monkeypatch, capsys, restored_signals
):
    said = {}
    for line in commands():
        run(line, monkeypatch)
        said[line] = capsys.readouterr().out
    dry, echo, first, show, *_, compared, looked = [
        line for line in commands() if not line.endswith("make_sums.py")
    ]
    assert said[dry].startswith("fits: ")
    assert '"verdict": "correct"' in said[echo]
    assert "report: runs/sums/report/index.html" in said[first]
    assert said[show].startswith("train, step 1: 128 completions: ")
    assert "earned    reward 0, advantage" in said[show]
    assert (
        "Why samples are wrong" in (folder / "runs/sums/report/index.html").read_text()
    )
    assert "seed 0" in said[compared]
    assert {path.name for path in folder.glob("sums.*")} == {
        *("sums.py", "sums.csv", "sums.tex", "sums.svg")
    }
    assert "band hard" in said[show]
    assert said[looked].startswith("reward 0.")
    assert "of 128 wrong, such as [{'stage': 'train', 'step': 1" in said[looked]


def test_the_recipe_of_the_page_is_as_large_as_the_page_says(folder):
    config = runpy.run_path(str(folder / "sums.py"))["get_config"]()
    assert config.task.record.level_order == ("easy", "medium", "hard")
    runpy.run_path(str(folder / "make_sums.py"), run_name="__main__")
    assert len(config.task.problems("train", seed=0)) == 400
    held_out = config.task.problems("eval", seed=0)
    assert len(held_out) == 64
    assert {problem.level for problem in held_out} == {1, 2, 3}
    asked = {problem.prompt for problem in config.task.problems("train", seed=0)}
    assert not asked & {problem.prompt for problem in held_out}
