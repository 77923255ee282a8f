"""Properties of metrics.jsonl, its TensorBoard mirror and the progress line."""

import io
import json
import math
import struct

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from job_jax.metrics import (
    MetricsWriter,
    NonFiniteMetricError,
    Progress,
    format_number,
)
from job_jax.metrics_file import read_metrics
from job_jax.working import format_duration


class Clock:
    """Returns the time it is set to."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(workdir, stages, *, stop_before=None):
    """Writes `stages` in order, as a run does; ends before `stop_before`."""
    with MetricsWriter(workdir) as writer:
        for stage, steps in stages:
            writer.rewind(stage, steps.start)
            for step in steps:
                if (stage, step) == stop_before:
                    return
                writer.write(stage, step, {"loss/total": step / 7, "count": step})


def untimed(workdir):
    lines = read_metrics(workdir / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k != "time_s"} for line in lines]


def events(workdir, stage):
    """Returns the scalar and session events of a stage, in order of writing.

    Each file begins with the version, by which TensorBoard knows the format.
    """
    found = []
    files = (workdir / "tensorboard" / stage).iterdir()
    for path in sorted(files, key=lambda p: int(p.name.rsplit(".", 1)[1])):
        assert path.name.startswith("events.out.tfevents.")
        data, at, read = path.read_bytes(), 0, []
        while at < len(data):
            (size,) = struct.unpack_from("Q", data, at)
            read.append(Event.FromString(data[at + 12 : at + 12 + size]))
            at += 16 + size
        assert [e.file_version for e in read] == ["brain.Event:2"] + [""] * len(
            read[1:]
        )
        found += read[1:]
    return found


def test_interrupted_and_resumed_equals_uninterrupted(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    run(whole, [("sft", range(4)), ("train", range(6))])
    run(cut, [("sft", range(4)), ("train", range(6))], stop_before=("train", 5))
    # The newest checkpoint was after step 2.
    run(cut, [("train", range(2, 6))])
    assert untimed(cut) == untimed(whole)


def test_rewinding_a_stage_drops_the_later_ones_and_keeps_the_earlier(tmp_path):
    run(tmp_path, [("sft", range(3)), ("train", range(3)), ("eval", range(1))])
    with MetricsWriter(tmp_path) as writer:
        writer.rewind("train", 1)
    kept = [(line["stage"], line["step"]) for line in untimed(tmp_path)]
    assert kept == [("sft", 0), ("sft", 1), ("sft", 2), ("train", 0)]


def test_rewinding_to_a_step_not_yet_reached_changes_nothing(tmp_path):
    run(tmp_path, [("sft", range(3))])
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with MetricsWriter(tmp_path) as writer:
        writer.rewind("sft", 3)
        writer.rewind("train", 0)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("torn_bytes", [1, 20, 40])
def test_torn_last_line_is_dropped(tmp_path, torn_bytes):
    run(tmp_path, [("train", range(3))])
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:torn_bytes])
    assert [line["step"] for line in read_metrics(path)] == [0, 1, 2]
    MetricsWriter(tmp_path).close()
    assert path.read_bytes() == whole


def test_broken_line_in_the_middle_is_named(tmp_path):
    run(tmp_path, [("train", range(3))])
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{broken\n" + lines[2])
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: not a JSON object"):
        read_metrics(path)


def test_each_line_can_be_read_while_the_writer_is_open(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", 0, {"reward/mean": np.float32(0.5)})
        (line,) = untimed(tmp_path)
    assert line == {"stage": "train", "step": 0, "reward/mean": 0.5}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_value_stops_and_writes_nothing(tmp_path, value):
    with MetricsWriter(tmp_path) as writer:
        with pytest.raises(
            NonFiniteMetricError, match=r"metric loss/total is .* at train step 7"
        ):
            writer.write("train", 7, {"reward/mean": 1.0, "loss/total": value})
        assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_nullable_value_becomes_null_only_where_it_is_not_finite(tmp_path):
    names = ("optimizer/grad_norm", "loss/total")
    with MetricsWriter(tmp_path) as writer:
        values = {"optimizer/grad_norm": math.inf, "loss/total": 0.25}
        writer.write("train", 0, values, nullable=names)
    (line,) = untimed(tmp_path)
    assert line["optimizer/grad_norm"] is None
    assert line["loss/total"] == 0.25
    (event,) = events(tmp_path, "train")
    assert [v.tag for v in event.summary.value] == ["loss/total"]


def test_integers_stay_integers(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", 0, {"count": np.int64(3), "share": 1.0})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert '"count": 3, "share": 1.0' in text


def test_time_leaves_out_the_interruption(tmp_path):
    clock = Clock(100.0)
    with MetricsWriter(tmp_path, clock=clock) as writer:
        for step in range(3):
            clock.now += 10
            writer.write("train", step, {})
    clock.now = 9_000.0
    with MetricsWriter(tmp_path, clock=clock) as writer:
        writer.rewind("train", 2)
        clock.now += 5
        writer.write("train", 2, {})
    times = [line["time_s"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert times == [10.0, 20.0, 25.0]


def test_time_between_two_stages_counts(tmp_path):
    clock = Clock()
    with MetricsWriter(tmp_path, clock=clock) as writer:
        writer.write("sft", 0, {})
        clock.now = 7.0
        writer.rewind("train", 0)
        writer.write("train", 0, {})
    times = [line["time_s"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert times == [0.0, 7.0]


def test_tensorboard_has_the_same_scalars_and_voids_the_repeated_steps(tmp_path):
    run(tmp_path, [("sft", range(3)), ("train", range(3))])
    run(tmp_path, [("train", range(1, 3))])
    warmup, train = events(tmp_path, "sft"), events(tmp_path, "train")
    assert [e.step for e in warmup] == [0, 1, 2]
    assert all(e.session_log.status == 0 for e in warmup)
    assert [(e.step, e.session_log.status) for e in train] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (1, SessionLog.START),
        (1, 0),
        (2, 0),
    ]
    scalars = {v.tag: v.simple_value for v in train[-1].summary.value}
    assert scalars == {"loss/total": np.float32(2 / 7), "count": 2.0}


def test_tensorboard_shows_a_step_at_once_and_does_not_wait_for_the_disk(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("os.fsync", lambda file: pytest.fail("waited for the disk"))
    with MetricsWriter(tmp_path) as writer:
        for step in range(3):
            writer.write("train", step, {"loss/total": 0.5})
            assert [e.step for e in events(tmp_path, "train")] == [*range(step + 1)]


def test_tensorboard_has_texts_and_histograms(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write_samples(
            "train",
            3,
            texts={"completion/0": "four \udc80"},
            histograms={
                "reward": np.array([0.0, 1.0, 1.0, np.nan]),
                "none": np.array([np.inf]),
            },
        )
        writer.write("train", 3, {"loss/total": 0.5})
    text, rewards, scalars = events(tmp_path, "train")
    (value,) = text.summary.value
    assert (text.step, value.tag) == (3, "completion/0/text_summary")
    assert value.tensor.string_val == [b"four ?"]
    (value,) = rewards.summary.value
    assert (value.tag, value.histo.num, value.histo.sum) == ("reward", 3, 2)
    assert [v.tag for v in scalars.summary.value] == ["loss/total"]
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1


def test_lines_are_json_that_any_reader_takes(tmp_path):
    run(tmp_path, [("train", range(2))])
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert list(json.loads(line)) == [
            "stage",
            "step",
            "time_s",
            "loss/total",
            "count",
        ]


def test_progress_leaves_the_compiling_steps_out_of_the_eta():
    clock, stream = Clock(), io.StringIO()
    progress = Progress("train", 400, every=1, stream=stream, clock=clock)
    for step, seconds in enumerate((60, 60, 2, 4), start=1):
        clock.now += seconds
        progress.update(step, {"reward": 0.62, "len": 38.24}, tokens=4200)
    first, _, third, fourth = stream.getvalue().splitlines()
    assert first == "train  1/400  reward 0.62  len 38.2"
    # 397 steps at 2 s; then 396 at the mean of 2 and 4 s, 8400 tokens in 6 s.
    assert third.endswith("2.1k tok/s  ETA 13m14s")
    assert fourth.endswith("1.4k tok/s  ETA 19m48s")


def test_progress_prints_every_nth_line_and_the_last_off_a_terminal():
    stream = io.StringIO()
    progress = Progress("train", 7, every=3, stream=stream, clock=Clock())
    for step in range(1, 8):
        progress.update(step, {})
    progress.close()
    assert stream.getvalue() == "train  3/7\ntrain  6/7\ntrain  7/7\n"


def test_progress_redraws_one_line_on_a_terminal_and_prints_notes_above_it():
    stream = Terminal()
    progress = Progress("train", 2, every=10, stream=stream, clock=Clock())
    progress.update(1, {})
    progress.log("alarm")
    progress.update(2, {})
    progress.close()
    assert stream.getvalue() == (
        "\rtrain  1/2\x1b[K\ralarm\x1b[K\ntrain  1/2\rtrain  2/2\x1b[K\n"
    )


def test_progress_never_wraps_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    progress = Progress("train", 2, every=10, stream=stream, clock=Clock())
    progress.update(1, {"reward": 0.5, "length": 38.0})
    assert stream.getvalue() == "\rtrain  1/2  reward \x1b[K"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (0.618, "0.62"),
        (-1.5, "-1.50"),
        (9.996, "10.0"),
        (38.24, "38.2"),
        (99.96, "100"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (1449, "1.4k"),
        (99_960, "100k"),
        (999_600, "1.0M"),
    ],
)
def test_short_number(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.4, "59s"), (59.6, "1m00s"), (130, "2m10s"), (3900, "1h05m")],
)
def test_short_duration(seconds, text):
    assert format_duration(seconds) == text


def test_progress_told_every_fifty_steps_counts_steps_not_updates():
    clock, stream = Clock(), io.StringIO()
    progress = Progress("train", 400, every=50, stream=stream, clock=clock)
    for step, seconds in ((50, 90), (100, 25), (150, 25)):
        clock.now += seconds
        progress.update(step, {}, tokens=1000)
    # The first fifty steps compiled; then half a second a step, 250 steps left.
    first, _, third = stream.getvalue().splitlines()
    assert first == "train  50/400"
    assert third == "train  150/400  40.0 tok/s  ETA 2m05s"
