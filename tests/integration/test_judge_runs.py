"""Runs with rewards from a judge and a user's function, in this process."""

import json
import shutil
import socket

import pytest

from rlvr_jax.main import main
from rlvr_jax.verifiers import judge as judge_module
from tests.support import user_extensions
from tests.support.command import tiny
from tests.support.judge_server import says, serve

FLAGS = (
    "--config.mesh.cpu_devices=8",
    "--config.sft.steps=2",
    "--config.train.steps=2",
    "--config.eval.every=0",
    "--config.judge.model=m",
    "--config.judge.max_attempts=1",
)


@pytest.fixture(autouse=True)
def apart(monkeypatch, restored_signals):
    monkeypatch.setattr(judge_module, "_FIRST_BACKOFF_S", 0.001)


def run(workdir, *flags):
    return main([*tiny(workdir), *FLAGS, *flags])


def train_rows(workdir):
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["stage"] == "train"]


def test_an_endpoint_that_is_down_ends_the_run_before_its_work(tmp_path, capsys):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        names = "--config.train.reward.names=judge"
        assert run(tmp_path / "run", names, f"--config.judge.url={url}") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: judge.url='{url}'")
    assert "no connection" in line
    assert not (tmp_path / "run" / "config.json").exists()


def test_an_unused_judge_is_refused(tmp_path, capsys):
    assert run(tmp_path / "run", "--config.judge.url=http://localhost:9/v1") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nothing uses a judge; name it in train.reward.names" in line


def test_a_reward_that_raises_after_its_trial_ends_the_run_in_one_line(
    tmp_path, capsys, monkeypatch
):
    def broken(problems, completions):
        if len(problems) == 2:  # the trial before the run
            return [0.0, 1.0]
        raise KeyError("gold")

    monkeypatch.setattr(user_extensions, "brevity", broken)
    names = "--config.train.reward.names=tests.support.user_extensions:brevity"
    without_judge = [flag for flag in FLAGS if ".judge." not in flag]
    assert main([*tiny(tmp_path), *without_judge, names]) == 1
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(
            "error: reward 'tests.support.user_extensions:brevity' failed on all of 32 "
            "completions; the first: KeyError: 'gold'; the fields of problem "
        )
    )


def test_a_run_asks_its_judge_once_for_each_pair_and_a_repeated_step_not_again(
    tmp_path,
):
    flags = [
        "--config.train.reward.names=correctness,judge",
        "--config.train.reward.weights=1,0.5",
        "--config.judge.max_attempts=5",  # a busy machine sometimes drops a connection
    ]

    def answer(text, attempt):
        if "1 + 1" in text:
            return says("VERDICT: yes")
        return says("VERDICT: yes") if len(text) % 3 else says("perhaps")

    with serve(answer) as endpoint:
        url = f"--config.judge.url={endpoint.url}"
        assert run(tmp_path, *flags, url) == 0
        bodies = [json.dumps(request) for request in endpoint.requests]
        asked = len(bodies)
    rows = train_rows(tmp_path)
    assert [0 < row["reward_failed/judge"] < 1 for row in rows] == [True] * 2
    assert {row["reward_time_limit/judge"] for row in rows} == {0.0}
    # All others earned 1, and a failed one gets the mean of its group, also 1.
    assert all(row["reward/judge"] > 1 - row["reward_failed/judge"] for row in rows)
    failed = {body for body in bodies if bodies.count(body) > 1}
    assert len(failed) < asked / 2
    shutil.rmtree(tmp_path / "checkpoints" / "train")
    (tmp_path / "summary.json").unlink()
    with serve(answer) as endpoint:  # another port: where it is may change
        assert run(tmp_path, *flags, f"--config.judge.url={endpoint.url}") == 0
        again = len(endpoint.requests)
    assert again < asked
    for before, after in zip(rows, train_rows(tmp_path), strict=True):
        for name in before:
            if not name.startswith(("time", "throughput")):
                assert before[name] == after[name], name
