"""examples/: each has a page, a config that runs, and the stated result."""

import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from transformers import AutoTokenizer

from rlvr_jax.models import load_hf

_ROOT = pathlib.Path(__file__).parents[2]
_FOLDER = _ROOT / "examples"
_NAMES = sorted(path.stem for path in _FOLDER.glob("*.py"))
_RUN = "inspect_run"  # a task for another library: tests/examples/test_inspect_run.py


@pytest.fixture
def opened(monkeypatch) -> Iterator[Callable[[str], ModuleType]]:
    """Returns a function that imports an example like `python FILE` does."""
    monkeypatch.syspath_prepend(_FOLDER)

    def forget() -> None:  # recipes have the same names
        for name in _NAMES:
            sys.modules.pop(name, None)

    forget()
    yield importlib.import_module
    forget()


@pytest.mark.parametrize("name", _NAMES)
def test_an_example_is_a_page_that_names_its_command(name):
    text = (_FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 60
    assert f"examples/{name}.py" in text.split('"""')[1]


def test_the_readme_of_the_folder_has_a_line_for_each_and_no_other():
    text = (_FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", text, re.M)) == _NAMES


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("own_reward", ()),
        ("own_data", (pathlib.Path("problems"),)),
        ("tool_use", ()),
        ("lora_huggingface", (pathlib.Path("model"),)),
        ("probe_and_steer", ()),
    ],
)
def test_the_config_of_an_example_is_one_that_can_run(opened, name, more):
    config = opened(name).make_config(2, *more)
    assert config.train.steps == 2
    assert config.sft.steps > 2


def test_an_example_for_processes_is_a_recipe(opened):
    config = opened("two_processes").get_config()
    assert config.train.batch_size % 2 == 0


def test_a_reward_pays_for_right_steps_that_lead_to_the_answer(opened):
    module = opened("own_reward")
    problem = module.make_config(2).task.problems("eval", seed=0)[0]
    paid = problem.solution
    assert module.shown(problem, paid) == 1.0
    *most, last = paid.split()
    other = "e1" if last != "e1" else "e2"
    assert module.shown(problem, " ".join([*most, other])) == 0.0
    assert module.shown(problem, f"answer {last}") == 0.0


def test_the_problems_of_own_data_are_right_and_held_apart(opened, tmp_path):
    opened("own_data").write_problems(tmp_path)
    held_out, train = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("eval.jsonl", "train.jsonl")
    )
    assert len(held_out) == 128
    assert len(train) > 1000
    words = [record["word"] for record in (*held_out, *train)]
    assert len(set(words)) == len(words)
    for record in held_out:
        assert record["sorted"].split() == sorted(record["word"].split())


def test_a_written_model_is_one_that_transformers_and_we_read(
    opened, tmp_path, monkeypatch
):
    module = opened("lora_huggingface")
    monkeypatch.setattr(module, "start_jax", lambda mesh: None)  # JAX has started
    module.write_model(tmp_path)
    policy = load_hf(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    problem = module.make_config(2, tmp_path).task.problems("eval", seed=0)[0]
    ids = tokenizer(problem.prompt)["input_ids"]
    assert tokenizer.decode(ids) == problem.prompt
    assert policy.eos_ids == (tokenizer.eos_token_id,)
    assert max(ids) < policy.vocab_size == len(tokenizer)


@pytest.fixture(scope="module")
def run(once, tmp_path_factory) -> Callable[..., tuple[pathlib.Path, str]]:
    """Returns a function that runs a small example: its workdir and its output."""
    cache = tmp_path_factory.mktemp("programs")

    def start(name: str) -> tuple[pathlib.Path, str]:
        workdir = tmp_path_factory.mktemp(name)
        ended = subprocess.run(
            [
                sys.executable,
                f"examples/{name}.py",
                "--steps=2",
                f"--workdir={workdir}",
            ],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={"JAX_COMPILATION_CACHE_DIR": str(cache)} | os.environ,
        )
        assert ended.returncode == 0, ended.stderr
        return workdir, ended.stdout

    return start


def pass_at_1(workdir: pathlib.Path) -> str:
    """Returns the line that summarizes a run."""
    scores = json.loads((workdir / "summary.json").read_text())["eval"]
    before, after = (scores[at]["pass@k"]["1"]["mean"] for at in ("before", "after"))
    return f"held-out pass@1: {before:.1%} before RL, {after:.1%} after"


@pytest.mark.parametrize("name", ["own_data", "own_reward"])
def test_a_run_of_ones_own_ends_with_its_score_and_a_report(run, name):
    workdir, said = run(name)
    assert said.splitlines()[-1] == pass_at_1(workdir)
    assert f"report: {workdir}/report/index.html" in said
    config = json.loads((workdir / "config.json").read_text())["config"]
    assert config["train"]["steps"] == 2


def test_a_run_with_a_tool_tells_its_calls(run):
    workdir, said = run("tool_use")
    *_, calls, score = said.splitlines()
    assert re.fullmatch(
        r"calls in an episode: \d\.\d\d at first, \d\.\d\d at last", calls
    )
    assert score == pass_at_1(workdir)


def test_a_run_of_adapters_ends_in_a_directory(run):
    workdir, said = run("lora_huggingface")
    assert pass_at_1(workdir) in said
    merged, start = (load_hf(workdir / name) for name in ("merged", "model"))
    assert merged.vocab_size == start.vocab_size
    saved = workdir / "checkpoints/train"
    assert list(saved.iterdir())
    assert AutoTokenizer.from_pretrained(workdir / "merged").eos_token == "<eos>"


def test_a_run_is_looked_into_and_steered(run):
    _, said = run("probe_and_steer")
    arms = re.findall(
        r"^(.+): pass@1 (\S+)%, KL (\S+) nats a token.*\n +(.*)$", said, re.M
    )
    clean, null, target, *controls = arms
    assert [arm[0] for arm in arms] == [
        *("clean", "null", "target", "random latents", "random direction")
    ]
    assert null[1:] == clean[1:]
    assert float(clean[2]) == 0
    assert all(float(arm[2]) > 0 for arm in (target, *controls[1:]))


def test_a_run_as_two_processes_is_that_of_one(run):
    _, said = run("two_processes")
    farthest = float(re.search(r"difference of a parameter: (\S+)", said)[1])
    assert farthest < 1e-5
    same, files = re.search(r"that are the same: (\d+) of (\d+)", said).groups()
    assert int(files) >= 3
    assert same == files
