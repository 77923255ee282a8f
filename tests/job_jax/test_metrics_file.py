"""metrics.jsonl, read by stage and column."""

import json
import tracemalloc

import pytest

from job_jax.metrics_file import StageMetrics, count_lines, read_stages

LINES = [
    {"stage": "sft", "step": 0, "time_s": 1.0, "loss": 2.5},
    {"stage": "train", "step": 0, "time_s": 2.0, "a": 1, "b": None},
    {"stage": "train", "step": 2, "time_s": 3.0, "b": 0.1, "late": -1.0},
    {"stage": "train", "step": 3, "time_s": 4.0, "a": 0.0},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    torn = '{"stage": "train", "st'
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES) + torn)
    return path


def _series(stage, name):
    return tuple(map(list, stage.series(name)))


def test_each_stage_has_its_lines_by_column_less_one_that_was_cut(file):
    stages = read_stages(file)
    assert {name: len(stage) for name, stage in stages.items()} == {
        "sft": 1,
        "train": 3,
    }
    train = stages["train"]
    assert list(train.steps) == [0, 2, 3]
    assert set(train.names) == {"time_s", "a", "b", "late"}
    assert _series(train, "a") == ([0, 3], [1.0, 0.0])
    assert _series(train, "b") == ([2], [0.1])
    assert _series(train, "late") == ([2], [-1.0])
    assert _series(train, "none") == ([], [])
    assert count_lines(file) == len(LINES)


def test_rows_hold_the_requested_columns_of_each_line(file):
    rows = read_stages(file)["train"].rows(lambda name: name in ("b", "late"))
    assert list(rows) == [(0, {}), (2, {"b": 0.1, "late": -1.0}), (3, {})]


def test_a_stage_without_lines_has_none():
    assert len(StageMetrics()) == 0
    assert _series(StageMetrics(), "a") == ([], [])
    assert list(StageMetrics().rows(bool)) == []


def test_a_number_takes_little_more_than_its_eight_bytes(tmp_path):
    num_lines, num_metrics = 5_000, 20
    path = tmp_path / "metrics.jsonl"
    names = [f"metric/{n}" for n in range(num_metrics)]
    with path.open("w") as lines:
        for step in range(num_lines):
            row = dict.fromkeys(names, step / 3)
            lines.write(json.dumps({"stage": "train", "step": step, **row}) + "\n")
    tracemalloc.start()
    stages = read_stages(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(stages["train"]) == num_lines
    assert peak < 12 * num_lines * num_metrics
