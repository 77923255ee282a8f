"""Runs from Hugging Face directories: from a checkpoint to a checkpoint."""

import dataclasses
import gzip
import json

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from job_jax.config_io import to_json
from rlvr_jax import convert
from rlvr_jax.config import PretrainedConfig
from rlvr_jax.main import main
from rlvr_jax.models import load_hf
from rlvr_jax.run.setup import open_setup
from tests.support.checkpoints import (
    MODEL,
    ROWS,
    word_config,
    write_checkpoint,
    write_problems,
)
from tests.support.policies import named


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path, restored_signals):
    """Prevents the command from changing this process."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))


@pytest.fixture
def start(tmp_path):
    return write_checkpoint(tmp_path / "hf")


@pytest.fixture
def problems(tmp_path):
    return write_problems(tmp_path / "problems.jsonl")


@pytest.fixture
def recipe(tmp_path):
    def write(config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"config": to_json(config)}))
        return f"--config={path}"

    return write


@pytest.fixture
def refusal(recipe, tmp_path, capsys):
    """Returns a run's one-line refusal."""

    def refuse(config):
        args = [recipe(config), f"--workdir={tmp_path / 'w'}", "--stage=train"]
        assert main(args) == 2
        shown = capsys.readouterr()
        lines = shown.err.splitlines()
        begun = (
            "warning: ",
            "stages to do: ",
            "done before: ",
            "CPU devices: ",
            "... ",
        )
        assert all(line.startswith(begun) for line in lines[:-1])
        assert lines[-1].startswith("error: ")
        return lines[-1]

    return refuse


def test_a_run_starts_from_the_directory_and_ends_in_one(
    tmp_path, start, problems, recipe, capsys
):
    config = word_config(start, problems)
    args = [recipe(config), f"--workdir={tmp_path / 'w'}", "--stage=train"]
    assert main(args) == 0, capsys.readouterr().err
    assert "warning: train.optimizer.learning_rate=0.0003" in capsys.readouterr().err
    assert convert.main(["to-hf", str(tmp_path / "w"), str(tmp_path / "out")]) == 0
    before, after = (nnx.state(load_hf(tmp_path / name)) for name in ("hf", "out"))
    moved = {
        name: np.abs(array - named(before)[name]).max()
        for name, array in named(after).items()
    }
    assert all(0 < most < 1e-2 for most in moved.values()), moved
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (start / name).read_bytes()
    summary = json.loads((tmp_path / "w" / "summary.json").read_text())
    assert summary["logprob_mismatch"]["mean"] < 1e-4
    with gzip.open(tmp_path / "w" / "rollouts" / "train_000000.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    assert rows[0]["prompt"].startswith("<|im_start|>system\nAdd.<|im_end|>\n")
    cut = [row["completion"] for row in rows if "!" in row["completion"]]
    assert all(text.index("!") == len(text) - 1 for text in cut)


def test_every_device_has_the_directorys_weights(tmp_path, start, problems):
    run = open_setup(
        word_config(start, problems), tmp_path / "unused", stages=("train",)
    )
    with jax.set_mesh(run.mesh), run.verifier:
        params = run.initial_params()
        assert jax.tree.structure(params) == jax.tree.structure(run.abstract_params())
    expected = named(nnx.state(load_hf(start)))
    for name, array in named(params).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert run.vocab_size == ROWS > run.tokenizer.vocab_size == 272


def _truncated(start):
    whole = (start / "model.safetensors").read_bytes()
    (start / "model.safetensors").write_bytes(whole[:-100])


def _removed(name):
    return lambda start: (start / name).unlink()


def _set(name, **changes):
    def change(start):
        settings = json.loads((start / name).read_text()) | changes
        (start / name).write_text(json.dumps(settings))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncated, "model.safetensors is damaged ("),
        (_removed("model.safetensors"), "model.safetensors; its directory holds"),
        (_removed("config.json"), "config.json; give a directory of a Hugging Face"),
        (_removed("tokenizer.json"), "tokenizer.json; give the directory of a fast"),
        (
            lambda start: (start / "tokenizer.json").write_text("{"),
            "tokenizer.json is not a fast tokenizer",
        ),
        (
            _set("config.json", architectures=["Qwen2MoeForCausalLM"]),
            "did you mean 'Qwen2ForCausalLM'",
        ),
        (
            _set("config.json", vocab_size=200),
            "the tokenizer has 272 tokens, but the model of",
        ),
        (
            _set("tokenizer_config.json", chat_template=None),
            "has none, neither chat_template.jinja nor in tokenizer_config.json",
        ),
        (
            _set(
                "tokenizer_config.json",
                added_tokens_decoder={"300": {"content": "<think>"}},
            ),
            "has '<think>' as token 300, tokenizer.json does not",
        ),
    ],
)
def test_a_checkpoint_that_no_run_can_start_from(
    refusal, start, problems, damage, message
):
    damage(start)
    assert message in refusal(word_config(start, problems))


def test_every_field_that_differs_is_named_in_one_line(refusal, start, problems):
    model = dataclasses.replace(
        MODEL, intermediate_size=24, qkv_bias=False, max_seq_len=513
    )
    config = word_config(
        start,
        problems,
        model=model,
        pretrained=PretrainedConfig(path=str(start), vocab_size=300),
    )
    line = refusal(config)
    for part in (
        "model.intermediate_size: 24 -> 16",
        "model.qkv_bias: False -> True",
        "model.max_seq_len: 513 -> 512",
        f"pretrained.vocab_size: 300 -> {ROWS}",
    ):
        assert part in line
    assert "head_dim" not in line


def test_a_directory_that_is_not_there(refusal, tmp_path, problems, recipe, capsys):
    config = word_config(tmp_path / "none", problems)
    assert f"no directory {tmp_path / 'none'}; give a directory" in refusal(config)
    sized = PretrainedConfig(path=str(tmp_path / "none"), vocab_size=ROWS)
    planned = dataclasses.replace(config, pretrained=sized)
    assert main([recipe(planned), "--dry_run"]) == 0
    shown = capsys.readouterr().out
    assert f"vocabulary  {ROWS}" in shown
    assert "none does not exist: tokenizer and data are not" in shown


@pytest.fixture
def words(tmp_path, start, problems):
    """Returns the flag for a recipe without a model."""
    path = tmp_path / "words.py"
    path.write_text(
        "from pathlib import Path\n"
        "from tests.support.checkpoints import word_config\n"
        "def get_config():\n"
        f"    return word_config(Path({str(start)!r}), Path({str(problems)!r}),\n"
        "        model='pretrained')\n"
    )
    return f"--config={path}"


def test_a_run_records_the_model_that_it_read(tmp_path, words, capsys):
    workdir = tmp_path / "w"
    args = [words, f"--workdir={workdir}", "--stage=train"]
    assert main(args) == 0, capsys.readouterr().err
    record = json.loads((workdir / "config.json").read_text())["config"]
    assert record["model"] == to_json(dataclasses.replace(MODEL, max_seq_len=512))
    capsys.readouterr()
    assert main(args) == 0
    assert capsys.readouterr().out.startswith("finished: ")
    assert main([*args, "--config.model.hidden_size=32"]) == 2
    assert "model.hidden_size: 32 -> 16" in capsys.readouterr().err


def test_a_run_trains_a_head_that_config_json_calls_tied(
    tmp_path, start, words, capsys
):
    """Dry run, run, resumed run and export: one decision, read from the weights."""
    held = load_file(start / "model.safetensors")
    held["lm_head.weight"] = np.flip(held["model.embed_tokens.weight"], axis=0).copy()
    save_file(held, start / "model.safetensors")
    workdir = tmp_path / "w"
    args = [words, f"--workdir={workdir}", "--stage=train"]
    assert main([*args, "--dry_run"]) == 0
    shown = capsys.readouterr()
    assert "lm_head.weight differs from model.embed_tokens.weight" in shown.err
    assert f"{sum(array.size for array in held.values()):,}" in shown.out
    assert main([*args, "--config.train.steps=1"]) == 0, capsys.readouterr().err
    record = json.loads((workdir / "config.json").read_text())["config"]
    assert record["model"]["tie_embeddings"] is False
    assert main(args) == 0, capsys.readouterr().err
    assert convert.main(["to-hf", str(workdir), str(tmp_path / "out")]) == 0
    out = load_file(tmp_path / "out" / "model.safetensors")
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        assert 0 < np.abs(out[name] - held[name]).max() < 1e-2
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["tie_word_embeddings"] is False
