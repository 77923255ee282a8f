"""A workdir holds one run, whole files only, and refuses what it cannot hold."""

import dataclasses
import json

import pytest

from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import override, to_json
from job_jax.workdir import WorkdirError
from rlvr_jax.analysis.workdir import read_run
from rlvr_jax.config import Config, JudgeConfig, LogConfig
from rlvr_jax.run.workdir import Workdir

CONFIG = Config()
ROWS = [{"prompt": "1 + 1", "completion": "zwei é", "reward": 1.0}] * 3


@pytest.fixture
def workdir(tmp_path):
    workdir = Workdir(tmp_path / "deep" / "run", CONFIG)
    workdir.write_config(CONFIG, device="abacus")
    return workdir


def tree(path):
    return {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}


def test_the_record_says_what_ran_where(workdir):
    record = read_run(workdir.path).metadata
    assert record["device"] == "abacus"
    assert record["seed"] == CONFIG.seed
    assert record["config"]["train"]["steps"] == CONFIG.train.steps
    assert {"python", "jax", "orbax-checkpoint"} <= record["versions"].keys()


def test_the_first_record_stays(workdir):
    again = dataclasses.replace(CONFIG, log=LogConfig(progress_every=7))
    Workdir(workdir.path, again).write_config(again, device="another")
    assert read_run(workdir.path).metadata["device"] == "abacus"


@pytest.mark.parametrize(
    "section",
    [
        {"mesh": MeshConfig(cpu_devices=4)},
        {"checkpoint": CheckpointConfig(every=3)},
        {"log": LogConfig(rollouts_every=1)},
        {"train": override(CONFIG, {"train.reward.timeout_s": "1"}).train},
    ],
)
def test_how_a_run_is_executed_and_watched_may_change(workdir, section):
    Workdir(workdir.path, dataclasses.replace(CONFIG, **section))


def test_where_a_judge_is_asked_may_change_and_what_it_is_may_not(tmp_path):
    judge = JudgeConfig(url="http://one/v1", model="m")
    config = dataclasses.replace(CONFIG, judge=judge)
    Workdir(tmp_path, config).write_config(config, device="abacus")

    def reopen(**changes):
        changed = dataclasses.replace(judge, **changes)
        Workdir(tmp_path, dataclasses.replace(CONFIG, judge=changed))

    reopen(url="http://another/v1", api_key_env="KEY", timeout_s=1.0)
    reopen(concurrency=1, max_attempts=1)
    for change in ({"model": "n"}, {"answer": "score"}, {"max_tokens": 1}):
        with pytest.raises(WorkdirError, match=f"judge.{next(iter(change))}"):
            reopen(**change)


def test_what_a_run_computes_may_not(workdir):
    other = override(CONFIG, {"train.steps": "7", "seed": "3", "log.alarm_window": "9"})
    with pytest.raises(WorkdirError) as caught:
        Workdir(workdir.path, other)
    message = str(caught.value)
    assert "(seed: 0 -> 3; train.steps: 200 -> 7); use another --workdir" in message
    assert str(workdir.path) in message


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"config": {"name": "x"}}'])
def test_a_record_that_is_none_is_refused(workdir, text):
    (workdir.path / "config.json").write_text(text)
    with pytest.raises(WorkdirError, match="is not the record of a run"):
        Workdir(workdir.path, CONFIG)


@pytest.mark.parametrize("inside", ["file", "file/run"])
def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path, inside):
    (tmp_path / "file").touch()
    with pytest.raises(WorkdirError, match=r"cannot be written \(.*\); choose another"):
        Workdir(tmp_path / inside, CONFIG)


def test_a_run_refused_before_its_record_leaves_nothing_to_trip_over(tmp_path):
    refused = Workdir(tmp_path, CONFIG)
    refused.tokenizer_path.write_text("learned for a config that was then refused")
    Workdir(tmp_path, override(CONFIG, {"seed": "1"}))
    assert tree(tmp_path) == set()


def test_the_tokenizer_of_a_recorded_run_stays(workdir):
    workdir.tokenizer_path.write_text("learned")
    assert Workdir(workdir.path, CONFIG).tokenizer_path.read_text() == "learned"


def test_the_summary_grows_section_by_section(workdir):
    assert workdir.read_summary() == {}
    workdir.update_summary({"params": 5, "stages": {"sft": 1.5}, "rfgo": None})
    workdir.update_summary({"params": 6, "stages": {"train": 2.5}, "rfgo": {"n": 1}})
    assert workdir.read_summary() == {
        "params": 6,
        "stages": {"sft": 1.5, "train": 2.5},
        "rfgo": {"n": 1},
    }


def test_what_a_killed_write_left_is_written_over(workdir):
    workdir.update_summary({"params": 5})
    (workdir.path / "summary.json.partial").write_text('{"par')
    (workdir.path / "rollouts" / "train_000004.jsonl.gz.partial").write_bytes(b"\x1f")
    assert workdir.read_summary() == {"params": 5}
    assert read_run(workdir.path).rollout_steps("train") == []
    workdir.update_summary({"params": 6})
    workdir.write_rollouts("train", 4, ROWS)
    assert workdir.read_summary() == {"params": 6}
    assert not [name for name in tree(workdir.path) if name.endswith(".partial")]


def test_rollouts_are_read_back_and_their_files_depend_on_the_rows_alone(workdir):
    path = workdir.path / "rollouts"
    workdir.write_rollouts("train", 4, ROWS)
    workdir.write_rollouts("eval_after", 0, ROWS)
    run = read_run(workdir.path)
    assert run.rollouts("train", 4) == ROWS
    first = (path / "train_000004.jsonl.gz").read_bytes()
    assert (path / "eval_after_000000.jsonl.gz").read_bytes() == first
    workdir.write_rollouts("train", 4, ROWS[:1])
    assert read_run(workdir.path).rollouts("train", 4) == ROWS[:1]


def test_the_record_reloads_as_the_config(workdir):
    other = override(CONFIG, {"train.steps": "7"})
    text = json.loads((workdir.path / "config.json").read_text())
    assert text["config"] != to_json(other)
    assert text["config"] == to_json(CONFIG)
