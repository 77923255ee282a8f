"""Whole runs graded by unit tests: on the user's records, and on generated ones."""

import json

import pytest

from tests.support.command import SMOKE, TINY, completions, summary

SMALL = (
    *("--config.sft.steps=1", "--config.train.steps=1", "--config.eval.num_samples=2"),
    *("--config.eval.k=1,2", "--config.train.group_size=2"),
    "--config.train.sampling.max_new_tokens=32",
    "--config.eval.sampling.max_new_tokens=16",
)


@pytest.fixture
def file(tmp_path):
    """MBPP's layout; the fourth record's solution fails its test."""
    path = tmp_path / "mbpp.jsonl"
    records = [
        {
            "task_id": i,
            "text": f"Write a function that adds {i} to a number.",
            "code": f"def add_{i}(x):\n    return x {'-' if i == 3 else '+'} {i}",
            "test_list": [f"assert add_{i}({x}) == {x + i}" for x in (1, 7)],
        }
        for i in range(12)
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_records_whose_solution_fails_are_named_and_the_others_are_run(
    command, tmp_path, file
):
    workdir = tmp_path / "run"
    ended = command.run(
        f"--config={SMOKE}",
        f"--workdir={workdir}",
        "--config.task.source=code",
        f"--config.task.train_path={file}",
        f"--config.task.eval_path={file}",
        "--config.tokenizer.kind=sentencepiece",
        "--config.tokenizer.vocab_size=300",
        *TINY,
        *SMALL,
    )
    assert ended.code == 0, ended.err
    fault = "3: AssertionError at 'assert add_3(1) == 4'; add_3 returned -2"
    assert "train: 1 of 12 problems left out" in ended.err
    assert ended.err.count(fault) == 2  # of train and of eval
    assert summary(workdir)["task"] == f"programs for {file}"
    rows = completions(workdir, "train_000000.jsonl.gz")
    assert len(rows) == 16
    assert all(row["verdict"] == "incorrect" and row["reason"] for row in rows)


def test_generated_programs_need_no_file(command, tmp_path):
    workdir = tmp_path / "run"
    ended = command.run(
        f"--config={SMOKE}",
        f"--workdir={workdir}",
        "--config.task.source=programs",
        "--config.task.num_steps=1,2",
        *TINY,
        *SMALL,
    )
    assert ended.code == 0, ended.err
    counts = summary(workdir)["verdicts"]
    assert counts["unverified"] == 0
    assert counts["incorrect"] > 0
