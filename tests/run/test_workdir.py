"""A workdir holds one run and only whole files, and refuses anything else."""

import dataclasses
import json
import random
import subprocess
import sys

import pytest

import job_jax.workdir
from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import override, to_json
from job_jax.files import DamagedFileError
from job_jax.workdir import LOCK_FILE, WorkdirError
from rlvr_jax.config import Config, JudgeConfig, LogConfig
from rlvr_jax.report.run_files import read_run
from rlvr_jax.run.workdir import DIFFICULTY_FILE, Workdir, saved_rollouts

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


def test_a_machine_without_git_records_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    workdir = Workdir(tmp_path / "run", CONFIG)
    workdir.write_config(CONFIG, device="abacus")
    assert read_run(workdir.path).metadata["git_commit"] is None


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


def test_a_judges_address_may_change_but_not_its_model(tmp_path):
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


@pytest.mark.parametrize(
    ("change", "continues"),
    [
        ({"train.optimizer.learning_rate": "1e-5"}, True),
        ({"model.hidden_size": "64"}, False),
        ({"model.max_seq_len": "600", "seed": "3"}, False),
    ],
)
def test_a_policy_of_another_shape_is_not_said_to_be_a_start(
    workdir, change, continues
):
    with pytest.raises(WorkdirError, match="use another --workdir") as refused:
        Workdir(workdir.path, override(CONFIG, change))
    assert ("--continue_from" in str(refused.value)) == continues


def test_changes_of_the_computation_are_refused(workdir):
    other = override(CONFIG, {"train.steps": "7", "seed": "3", "log.alarm_window": "9"})
    with pytest.raises(WorkdirError) as caught:
        Workdir(workdir.path, other)
    message = str(caught.value)
    assert "(seed: 0 -> 3; train.steps: 200 -> 7); use another --workdir" in message
    assert str(workdir.path) in message


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"config": {}}'])
def test_a_record_that_is_none_is_refused(workdir, text):
    (workdir.path / "config.json").write_text(text)
    with pytest.raises(WorkdirError, match="is not a config that this version"):
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
    assert tree(tmp_path) == {LOCK_FILE}


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


def test_leftovers_of_a_killed_write_are_overwritten(workdir):
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


def change_steps(workdir, steps, saved=CONFIG, **changes):
    """Opens the workdir with another number of RL steps, and records it."""
    config = override(saved, {"train.steps": str(steps), **changes})
    again = Workdir(workdir.path, config)
    again.record_steps(config)
    return again


def do_steps(workdir, number):
    (workdir.checkpoints / "train" / str(number)).mkdir(parents=True)


def test_a_run_may_be_asked_for_more_steps(workdir):
    do_steps(workdir, 200)
    workdir.update_summary(
        {"params": 5, "eval": {"before": {"n": 1}, "after": {"n": 2}, "gain": 3}}
    )
    for stage in ("eval_before", "eval_after"):
        workdir.write_rollouts(stage, 0, [{"id": "a"}])
    change_steps(workdir, 250)
    assert saved_rollouts(workdir.path) == {"eval_before": [0]}
    record = read_run(workdir.path).metadata
    assert record["config"] == to_json(override(CONFIG, {"train.steps": "250"}))
    assert record["device"] == "abacus"
    # Measurements after the last step belong to the shorter run's policy.
    assert workdir.read_summary() == {"params": 5, "eval": {"before": {"n": 1}}}
    saved = override(CONFIG, {"train.steps": "250"})
    change_steps(workdir, 300, saved, **{"log.progress_every": "3"})
    assert read_run(workdir.path).metadata["former_train_steps"] == [200, 250]
    before = tree(workdir.path)
    with pytest.raises(WorkdirError, match=r"seed: 0 -> 1; train.steps: 300 -> 301"):
        change_steps(workdir, 301, saved, seed="1")
    assert tree(workdir.path) == before


def test_the_same_number_of_steps_changes_nothing(workdir):
    workdir.update_summary({"eval": {"after": {"n": 2}}})
    before = (workdir.path / "config.json").read_bytes()
    change_steps(workdir, CONFIG.train.steps)
    assert (workdir.path / "config.json").read_bytes() == before
    assert workdir.read_summary() == {"eval": {"after": {"n": 2}}}


@pytest.mark.parametrize(
    ("done", "steps", "settings", "reason"),
    [
        (8, 7, {}, "would undo steps"),
        (8, 12, {"train.optimizer.schedule": "cosine"}, "schedule=cosine"),
        (8, 9, {"train.optimizer.schedule": "cosine"}, "change the learning rate"),
        (8, 12, {"curriculum.name": "easy_to_hard"}, "curriculum.name=easy_to_hard"),
        (
            10,
            12,
            {"train.staleness": "1", "train.loss.tis_cap": "2"},
            "train.staleness=1 would have",
        ),
    ],
)
def test_steps_that_are_done_stay_as_they_are(tmp_path, done, steps, settings, reason):
    saved = override(CONFIG, {"train.steps": "10", **settings})
    workdir = Workdir(tmp_path, saved)
    workdir.write_config(saved, device="abacus")
    do_steps(workdir, done)
    with pytest.raises(WorkdirError) as caught:
        change_steps(workdir, steps, saved)
    message = str(caught.value)
    assert reason in message
    assert f"--continue_from={tmp_path}" in message
    assert "\n" not in message
    assert read_run(tmp_path).config["train"]["steps"] == 10


@pytest.mark.parametrize(
    ("done", "steps", "settings"),
    [
        (8, 8, {}),
        (8, 9, {}),
        (10, 11, {}),
        (0, 3, {"train.optimizer.schedule": "cosine"}),
        (9, 12, {"train.staleness": "1", "train.loss.tis_cap": "2"}),
    ],
)
def test_steps_that_are_not_done_may_be_any(tmp_path, done, steps, settings):
    saved = override(CONFIG, {"train.steps": "10", **settings})
    workdir = Workdir(tmp_path, saved)
    workdir.write_config(saved, device="abacus")
    if done:
        do_steps(workdir, done)
    change_steps(workdir, steps, saved)
    assert read_run(tmp_path).config["train"]["steps"] == steps


def test_a_copy_of_anothers_policy_goes_with_the_run_that_was_refused(tmp_path):
    refused = Workdir(tmp_path, CONFIG)
    (refused.checkpoints / "start" / "4").mkdir(parents=True)
    again = Workdir(tmp_path, CONFIG)
    assert not (again.checkpoints / "start").exists()
    (again.checkpoints / "start" / "4").mkdir(parents=True)
    again.write_config(CONFIG, device="abacus")
    Workdir(tmp_path, CONFIG)
    assert (again.checkpoints / "start" / "4").is_dir()


def test_processes_that_work_in_different_places_refuse(workdir, monkeypatch):
    urls = [None, None, "gs://b/run"]
    monkeypatch.setattr(job_jax.workdir, "all_gather_json", lambda url: urls)
    with pytest.raises(
        WorkdirError, match="process 2 works in gs://b/run, and process"
    ):
        Workdir(workdir.path, CONFIG)


def test_a_process_that_ends_leaves_no_lock_and_a_stale_one_is_taken_over(tmp_path):
    (tmp_path / LOCK_FILE).write_text("process 1 on a machine that is gone\n")
    code = (
        "import pathlib, sys; from rlvr_jax.config import Config\n"
        "from rlvr_jax.run.workdir import Workdir\n"
        "path = pathlib.Path(sys.argv[1]); Workdir(path, Config())\n"
        "print((path / '.lock').read_text())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.startswith("process ")
    assert "machine that is gone" not in ended.stdout
    assert LOCK_FILE not in tree(tmp_path)


def test_a_workdir_that_was_let_go_is_free_in_the_same_process(tmp_path):
    workdir = Workdir(tmp_path, CONFIG)
    Workdir(tmp_path, CONFIG)  # its own lock
    with workdir.mirrored():
        assert (tmp_path / LOCK_FILE).is_file()
    assert not (tmp_path / LOCK_FILE).exists()


def test_200_flipped_bits_of_the_difficulties_are_200_found(workdir):
    rows = [{"id": f"problem {n}", "mean": n / 50} for n in range(50)]
    workdir.write_difficulty(rows)
    assert workdir.read_difficulty() == rows
    file = workdir.path / DIFFICULTY_FILE
    content = file.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(content)), 200):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with pytest.raises(DamagedFileError, match=r"difficulty\.jsonl is damaged"):
            workdir.read_difficulty()


def test_a_run_from_before_a_field_goes_on_without_it(workdir):
    """Its recipe, read today, has `auto`; the run continues with thinking off."""
    record = json.loads(workdir.config_path.read_text())
    del record["config"]["tokenizer"]["thinking"]
    workdir.config_path.write_text(json.dumps(record))
    again = Workdir(workdir.path, CONFIG)
    assert again.resume_config(CONFIG).tokenizer.thinking == "off"
    on = override(CONFIG, {"tokenizer.thinking": "on"})
    with pytest.raises(WorkdirError, match=r"tokenizer.thinking: 'off' -> 'on'"):
        Workdir(workdir.path, on)


def test_a_run_of_today_goes_on_as_its_record_says(workdir):
    assert workdir.resume_config(CONFIG) is CONFIG
    assert Workdir(workdir.path.parent / "new", CONFIG).resume_config(CONFIG) is CONFIG
