"""Tracked runs: killed and resumed, failing, refused; wandb's files."""

import json
import shutil
import signal
import struct

import pytest

from tests.support.command import (
    ROOT,
    completions,
    files,
    metrics,
    outcome,
    summary,
    tiny,
)

# Writes everything to a file next to the workdir, and fails on request.
TRACKER = """
import json, os
from pathlib import Path
from job_jax.trackers.base import Tracker

class Lines(Tracker):
    @property
    def path(self):
        return Path(self.run.workdir).with_suffix(".tracked")

    def say(self, **event):
        with self.path.open("a") as file:
            file.write(json.dumps({"id": self.run.id, **event}) + "\\n")

    def open(self):
        if os.environ.get("TRACKER") == "closed":
            raise ConnectionError("no route")
        self.say(opened=self.run.name)
        events = map(json.loads, self.path.read_text().splitlines())
        return sum("step" in event for event in events)

    def log(self, line):
        if os.environ.get("TRACKER") == "broken" and line.number > 7:
            raise ConnectionError("no route")
        self.say(stage=line.stage, step=line.step, values=dict(line.values),
                 completions=[row["completion"] for row in line.samples],
                 alarms=list(line.alarms))

    def finish(self, results):
        self.say(files=[Path(f).name for f in results.files],
                 tables=sorted(results.tables), pass_at_1=results.numbers[
                     "eval/after/pass@k/1/mean"])

    def close(self, *, failed):
        self.say(closed=failed)
"""
MINE = "--config.log.trackers=lines:Lines"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Puts a user's tracker where Python finds it."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "lines.py").write_text(TRACKER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'own'}:{ROOT}")


def events(workdir, key):
    """Returns the events of the user's tracker of that kind."""
    lines = workdir.with_suffix(".tracked").read_text().splitlines()
    return [event for event in map(json.loads, lines) if key in event]


def test_a_run_killed_and_resumed_is_one_tracked_run_of_each_step_once(
    command, whole, mine, tmp_path
):
    workdir = tmp_path / "run"
    ended = command.cut("train  3/4", signal.SIGKILL, *tiny(workdir, MINE))
    assert ended.code == -signal.SIGKILL
    ended = command.run(*tiny(workdir, MINE))
    assert ended.code == 0, ended.err
    assert outcome(workdir) == outcome(whole)
    logged = events(workdir, "step")
    record = metrics(workdir)
    assert [(e["stage"], e["step"]) for e in logged] == [
        (row["stage"], row["step"]) for row in record
    ]
    for event, row in zip(logged, record, strict=True):
        told = {k: v for k, v in event["values"].items() if not k.startswith("time")}
        assert told == {k: v for k, v in row.items() if k not in ("stage", "step")}
    assert len({event["id"] for event in logged}) == 1
    assert [event["opened"] for event in events(workdir, "opened")] == ["run"] * 2
    for event in logged[6:]:
        name = f"train_{event['step']:06}.jsonl.gz"
        rows = completions(workdir, name)
        assert event["completions"] == [row["completion"] for row in rows]
    alarms = [alarm for event in logged for alarm in event["alarms"]]
    assert [alarm.split(": ")[1] for alarm in alarms] == [
        alarm["code"] for alarm in summary(workdir)["alarms"]
    ]
    (results,) = events(workdir, "files")
    assert results["files"] == ["index.html", "summary.json", "config.json"]
    assert results["tables"] == ["eval_after", "eval_before"]
    scores = summary(workdir)["eval"]["after"]["pass@k"]
    assert results["pass_at_1"] == scores["1"]["mean"]
    assert [event["closed"] for event in events(workdir, "closed")] == [False]
    # Nothing is left to do or to track.
    before = files(workdir)
    assert command.run(*tiny(workdir, MINE)).out.startswith("finished: ")
    assert files(workdir) == before
    assert len(events(workdir, "opened")) == 2


def test_a_finished_run_is_tracked_when_a_tracker_is_named(
    command, whole, mine, tmp_path
):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    assert command.run(*tiny(workdir, MINE)).code == 0
    assert [e["step"] for e in events(workdir, "step")] == [*range(6), *range(4)]
    assert len(events(workdir, "files")) == 1
    assert outcome(workdir) == outcome(whole)


def test_a_tracker_that_breaks_costs_a_run_two_lines(
    command, whole, mine, tmp_path, monkeypatch
):
    workdir = tmp_path / "run"
    monkeypatch.setenv("TRACKER", "broken")
    ended = command.run(*tiny(workdir, MINE))
    assert ended.code == 0, ended.err
    assert outcome(workdir) == outcome(whole)
    told = [line for line in ended.err.splitlines() if line.startswith("tracker")]
    assert (
        "tracker lines:Lines: ConnectionError: no route; the run continues" in told[0]
    )
    assert "lacks the last 2 of 10 lines" in told[1]
    assert len(told) == 2
    # The same command sends the missing events, though the run has nothing left to do.
    monkeypatch.delenv("TRACKER")
    ended = command.run(*tiny(workdir, MINE))
    assert ended.out.startswith("finished: ")
    assert [e["step"] for e in events(workdir, "step")] == [*range(6), *range(4)]
    assert len(events(workdir, "files")) == 1


def test_a_tracker_that_does_not_open_is_refused_before_a_step(
    command, mine, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRACKER", "closed")
    ended = command.run(*tiny(tmp_path / "run", MINE))
    assert (ended.code, ended.out) == (2, "")
    *_, error = ended.err.splitlines()
    assert error == (
        "error: log.trackers: lines:Lines does not open: ConnectionError: no route; "
        "set log.tracking.mode=offline, or leave lines:Lines out"
    )
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_missing_library_is_reported_before_anything_is_made(
    command, tmp_path, monkeypatch, name
):
    (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    ended = command.run(*tiny(tmp_path / "run", f"--config.log.trackers={name}"))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: log.trackers: {name} is not installed; pip install "
        f"'rlvr_jax[{name}]'\n"
    )
    assert not (tmp_path / "run").exists()


def wandb_records(path):
    """Returns the records of an offline run: a log of blocks in leveldb's format."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, at, record, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:  # no header fits: padded with zeros
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last of its parts
            found.append(messages.Record.FromString(record))
            record = b""
    return found


def wandb_history(records):
    """Returns the logged steps, each as {key: value}."""
    return [
        {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]


@pytest.mark.filterwarnings("ignore")  # by the library
def test_wandb_offline_holds_a_killed_and_resumed_run_once(
    command, tmp_path, monkeypatch
):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    workdir = tmp_path / "run"
    flags = ("--config.log.trackers=wandb", "--config.log.tracking.mode=offline")
    command.cut("train  3/4", signal.SIGKILL, *tiny(workdir, *flags))
    ended = command.run(*tiny(workdir, *flags))
    assert ended.code == 0, ended.err
    (path,) = (workdir / "wandb").glob("offline-run-*/*.wandb")
    assert f"wandb sync {path.parent}" in ended.err
    records = wandb_records(path)
    runs = [r.run for r in records if r.WhichOneof("record_type") == "run"]
    state = json.loads((workdir / "tracking.json").read_text())
    assert {run.run_id for run in runs} == {state["id"]}
    assert (runs[0].project, runs[0].display_name) == ("rlvr_jax", "run")
    config = {
        item.key: json.loads(item.value_json)
        for run in runs
        for item in run.config.update
    }
    assert config["train"]["steps"] == 4
    history = wandb_history(records)
    record = metrics(workdir)
    assert [row["_step"] for row in history] == list(range(10))
    for row, line in zip(history, record, strict=True):
        stage = line["stage"]
        assert row[f"{stage}/step"] == line["step"]
        for name, value in line.items():
            if "/" in name:
                assert row[f"{stage}/{name}"] == pytest.approx(value)
    tables = [row["rollouts/train/nrows"] for row in history[6:]]
    assert tables == [32] * 4
    kinds = [record.WhichOneof("record_type") for record in records]
    assert kinds.count("alert") == len(summary(workdir)["alarms"])
    (report,) = (r.artifact for r in records if r.artifact.type == "report")
    assert {entry.path for entry in report.manifest.contents} >= {
        "index.html",
        "summary.json",
        "config.json",
    }
    # No file contains the key.
    for file in workdir.rglob("*"):
        assert not file.is_file() or b"k" * 40 not in file.read_bytes(), file


def test_trackio_holds_a_killed_and_resumed_run_once(command, tmp_path, monkeypatch):
    pytest.importorskip("trackio", reason="the extra trackio is not installed")
    sqlite3 = pytest.importorskip("sqlite3")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    workdir = tmp_path / "run"
    flags = ("--config.log.trackers=trackio", "--config.log.tracking.project=chains")
    command.cut("train  3/4", signal.SIGKILL, *tiny(workdir, *flags))
    ended = command.run(*tiny(workdir, *flags))
    assert ended.code == 0, ended.err
    state = json.loads((workdir / "tracking.json").read_text())
    with sqlite3.connect(tmp_path / "trackio" / "chains.db") as database:
        found = database.execute(
            "SELECT run_name, step, metrics FROM metrics ORDER BY id"
        )
        rows = [(name, step, json.loads(text)) for name, step, text in found]
        alerts = database.execute("SELECT step FROM alerts").fetchall()
    assert {name for name, _, _ in rows} == {f"run-{state['id']}"}
    *lines, (_, last, results) = rows
    assert [step for _, step, _ in lines] == list(range(10))
    for (_, _, row), line in zip(lines, metrics(workdir), strict=True):
        stage = line["stage"]
        assert row[f"{stage}/step"] == line["step"]
        for name, value in line.items():
            if "/" in name:
                assert row[f"{stage}/{name}"] == pytest.approx(value)
    assert last == 9
    assert results.keys() >= {"eval_before", "eval_after", "eval/after/pass@k/1/mean"}
    assert len(alerts) == len(summary(workdir)["alarms"])
    assert list((tmp_path / "trackio").rglob("artifacts"))
