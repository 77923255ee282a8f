"""examples/inspect_run.py: Inspect and `rlvr_jax.evaluate` measure the same."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from job_jax.config_io import to_json
from rlvr_jax.config import MeshConfig, OptimizerConfig, SFTConfig, TokenizerConfig
from tests.support.checkpoints import (
    MODEL,
    word_config,
    write_checkpoint,
    write_problems,
)

_ROOT = pathlib.Path(__file__).parents[2]
# AutoTokenizer reads a Llama's tokenizer.json as it is, but rebuilds a Qwen2's.
_LLAMA = {
    "family": "llama",
    "qkv_bias": False,
    "hidden_size": 64,
    "intermediate_size": 64,
}
_SETTINGS = {"num_samples": 1, "k": 1, "sampling.temperature": 0}


def run(*command: object) -> str:
    """Returns the output of a Python command, which must succeed."""
    ended = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def workdir(tmp_path_factory) -> pathlib.Path:
    """A run that memorized some of sixteen sums from a file of records."""
    folder = tmp_path_factory.mktemp("sums")
    config = dataclasses.replace(
        word_config(
            write_checkpoint(folder / "start", **_LLAMA),
            write_problems(folder / "problems.jsonl"),
        ),
        mesh=MeshConfig(cpu_devices=1),
        model=dataclasses.replace(MODEL, **_LLAMA),
        tokenizer=TokenizerConfig(kind="huggingface", stop_strings=("<|im_end|>",)),
        sft=SFTConfig(
            steps=60, batch_size=16, optimizer=OptimizerConfig(learning_rate=3e-3)
        ),
    )
    config = dataclasses.replace(
        config, eval=dataclasses.replace(config.eval, num_problems=16)
    )
    recipe = folder / "config.json"
    recipe.write_text(json.dumps({"config": to_json(config)}))
    run("rlvr_jax.main", f"--config={recipe}", f"--workdir={folder / 'run'}")
    return folder / "run"


@pytest.mark.live
def test_inspect_scores_an_export_as_evaluate_scores_the_run(workdir, tmp_path):
    inspect_log = pytest.importorskip(
        "inspect_ai.log", reason="the extra [inspect] is not installed"
    )
    config = workdir / "config.json"
    greedy = [f"--config.eval.{name}={value}" for name, value in _SETTINGS.items()]
    ours = run(
        "rlvr_jax.evaluate", f"--config={config}", f"--checkpoint={workdir}", *greedy
    )
    run("rlvr_jax.convert", "to-hf", workdir, tmp_path / "export")
    run(
        "inspect_ai",
        *("eval", "examples/inspect_run.py", "--display=plain"),
        *("-T", f"workdir={workdir}", "-T", f"export={tmp_path / 'export'}"),
        f"--log-dir={tmp_path / 'logs'}",
    )
    (info,) = inspect_log.list_eval_logs(str(tmp_path / "logs"))
    log = inspect_log.read_eval_log(info)
    theirs = log.results.scores[0].metrics["accuracy"].value
    expected = json.loads(ours)["pass@k"]["1"]["mean"]
    assert 0 < expected < 1
    assert theirs == pytest.approx(expected)
    assert len(log.samples) == 16
