"""Bad input: one clear line, the right exit code, nothing started."""

import json
import shutil

import pytest
from command import ROOT, overrides, tiny

WORDS = [
    {"question": f"What is {a} plus {b}?", "answer": f"{a}+{b}={a + b}\n#### {a + b}"}
    for a in range(5)
    for b in range(5)
]


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def words(tmp_path):
    return write(tmp_path / "words.jsonl", map(json.dumps, WORDS))


def word_run(workdir, path, **more):
    """The arguments of a run on word problems."""
    return [
        f"--config={ROOT / 'configs' / 'gsm8k_tiny.py'}",
        f"--workdir={workdir}",
        *overrides(
            task__train_path=path,
            task__eval_path=path,
            tokenizer__vocab_size=300,
            **more,
        ),
    ]


def refusal(command, *args):
    """The one line on standard error of a command that was refused."""
    ended = command.run(*args)
    assert ended.code == 2, ended.err
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1, ended.err
    return ended.err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("--config.train.setps=3", "did you mean 'train.steps'"),
        ("--config.train.steps=ten", "train.steps expects an int, got 'ten'"),
        ("--config.train.samples_per_prompt=1", "samples_per_prompt=1"),
        ("--config.train.prompts_per_step=9", "not divisible by the mesh"),
        ("--stage=trian", "trian"),
    ],
)
def test_a_bad_setting(command, tmp_path, override, message):
    extra = ("--config.mesh.cpu_devices=2", override)
    assert message in refusal(command, *tiny(tmp_path / "w", *extra))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "empty"),
        ([json.dumps(WORDS[0]), "{not json"], "line 2"),
        ([json.dumps(WORDS[0]), json.dumps({"question": "?"})], "line 2"),
    ],
)
def test_a_bad_data_file(command, tmp_path, lines, message):
    path = write(tmp_path / "bad.jsonl", lines)
    line = refusal(command, *word_run(tmp_path / "w", path))
    assert str(path) in line
    assert message in line


def test_a_missing_data_file(command, tmp_path):
    line = refusal(command, *word_run(tmp_path / "w", tmp_path / "none.jsonl"))
    assert "none.jsonl" in line


def test_a_prompt_too_long_is_counted_and_never_cut(command, tmp_path):
    long = {"question": "word " * 600, "answer": "1\n#### 1"}
    path = write(tmp_path / "long.jsonl", map(json.dumps, [*WORDS, long]))
    ended = command.run(*word_run(tmp_path / "w", path), "--dry_run")
    assert ended.code == 0, ended.err
    assert "1 of 26" in ended.out + ended.err


def test_only_prompts_too_long(command, tmp_path, words):
    args = word_run(tmp_path / "w", words, model__max_length=200)
    small = overrides(
        train__sampling__max_new_tokens=199, eval__sampling__max_new_tokens=199
    )
    assert "none of 25 problems fits" in refusal(command, *args, *small)


def test_a_workdir_of_another_config(command, whole):
    line = refusal(command, *tiny(whole, "--config.train.optimizer.b1=0.5"))
    assert "train.optimizer.b1: 0.9 -> 0.5" in line


def test_a_workdir_that_cannot_be_written(command, tmp_path):
    (tmp_path / "file").touch()
    assert "cannot be written" in refusal(command, *tiny(tmp_path / "file" / "w"))


def test_a_checkpoint_of_other_shapes(command, whole, tmp_path):
    workdir = tmp_path / "w"
    shutil.copytree(whole, workdir)
    record = json.loads((workdir / "config.json").read_text())
    record["config"]["model"]["mlp_width"] = 24
    (workdir / "config.json").write_text(json.dumps(record))
    (workdir / "summary.json").unlink()
    line = refusal(command, *tiny(workdir, "--config.model.mlp_width=24"))
    assert "where the config asks for" in line


def test_a_gap_above_the_limit_stops_the_run(command, tmp_path):
    ended = command.run(
        *tiny(
            tmp_path,
            "--config.train.max_logprob_gap=1e-12",
            "--config.model.compute_dtype=bfloat16",
        )
    )
    assert ended.code == 1
    assert "sampler and scorer differ" in ended.err
