"""A tracker in the background: each line once, without slowing the run."""

import json
import threading
import types

import pytest

from job_jax import metrics
from job_jax.metrics import MetricsWriter
from job_jax.metrics_file import read_lines, read_metrics
from job_jax.schema import ConfigError
from job_jax.trackers import background
from job_jax.trackers.background import BackgroundTracker
from job_jax.trackers.base import RunResults, TrackedRun
from job_jax.trackers.state import TRACKING_FILE, TrackingState
from tests.support.trackers import Recorder

RESULTS = RunResults(num_lines=4, numbers={"a": 1.0}, tables={}, files=())


def tracked(state, **changes):
    return TrackedRun(
        **{
            "id": state.id,
            "name": "mine",
            "project": "p",
            "offline": True,
            "workdir": str(state.path.parent),
            "config": {},
            "parent": state.parent,
            "num_logged": state.num_logged.get("recorder", 0),
            **changes,
        }
    )


def background_of(workdir, make=Recorder, *, patience_s=60.0, describe=None):
    """Returns an opened tracker of a workdir, and the tracker that it wraps."""
    state = TrackingState.open(workdir, parent=None)
    inner = make(tracked(state))
    tracker = BackgroundTracker(
        "recorder",
        inner,
        state=state,
        read_lines=lambda: read_lines(workdir / "metrics.jsonl"),
        describe=describe or (lambda line, is_new: line),
        patience_s=patience_s,
    )
    tracker.open()
    return tracker, inner


def attempt(workdir, steps, make=Recorder, **options):
    """Logs steps of stage train, from a checkpoint before the first of them."""
    tracker, inner = background_of(workdir, make, **options)
    with MetricsWriter(workdir, trackers=(tracker,)) as writer:
        writer.rewind("train", steps.start)
        for step in steps:
            writer.write("train", step, {"loss": step / 7})
    tracker.close(failed=False)
    return inner


def steps_of(workdir):
    return [line["step"] for line in read_metrics(workdir / "metrics.jsonl")]


def test_every_line_is_logged_once_in_order_with_its_values(tmp_path):
    tracker, inner = background_of(tmp_path)
    with MetricsWriter(tmp_path, trackers=(tracker,)) as writer:
        writer.write("sft", 0, {"loss": 2.0})
        writer.write("train", 0, {"loss": float("nan"), "n": 3}, nullable=("loss",))
        writer.write("train", 1, {"loss": 0.5, "n": 4})
    tracker.finish(RESULTS)
    tracker.close(failed=False)
    assert [(x.number, x.stage, x.step, dict(x.values)) for x in inner.lines] == [
        (0, "sft", 0, {"loss": 2.0}),
        (1, "train", 0, {"loss": None, "n": 3}),
        (2, "train", 1, {"loss": 0.5, "n": 4}),
    ]
    assert inner.lines[1].flat() == {
        "train/n": 3,
        "train/step": 0,
        "time_s": inner.lines[1].time_s,
    }
    assert inner.events[0] == "open"
    assert inner.events[-2:] == [RESULTS, "close failed=False"]
    kept = json.loads((tmp_path / TRACKING_FILE).read_text())
    assert kept["num_logged"] == {"recorder": 3}
    assert kept["finished"] == ["recorder"]


def test_a_resumed_run_has_its_id_and_logs_no_step_twice(tmp_path):
    first = attempt(tmp_path, range(0, 5))
    # Killed after step 4; the newest checkpoint was before step 2.
    second = attempt(tmp_path, range(2, 8))
    assert first.run.id == second.run.id
    assert (first.numbers, second.numbers) == ([0, 1, 2, 3, 4], [5, 6, 7])
    assert steps_of(tmp_path) == list(range(8))


def test_lines_lost_by_a_tracker_are_sent_from_the_file(tmp_path):
    attempt(tmp_path, range(0, 5))
    second = attempt(tmp_path, range(2, 8), lambda run: Recorder(run, held=1))
    assert second.numbers == [1, 2, 3, 4, 5, 6, 7]
    assert [line.values["loss"] for line in second.lines] == [
        n / 7 for n in range(1, 8)
    ]


def test_a_tracker_that_has_more_than_the_file_waits_for_its_end(tmp_path):
    attempt(tmp_path, range(0, 2))
    second = attempt(tmp_path, range(2, 8), lambda run: Recorder(run, held=6))
    assert second.numbers == [6, 7]


def test_a_tracker_that_is_named_later_gets_the_run_from_its_beginning(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for step in range(3):
            writer.write("train", step, {"loss": step / 7})
    assert attempt(tmp_path, range(3, 5)).numbers == [0, 1, 2, 3, 4]


def test_a_finished_run_may_be_tracked_afterwards(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for step in range(4):
            writer.write("train", step, {"loss": step / 7})
    tracker, inner = background_of(tmp_path)
    tracker.finish(RESULTS)
    tracker.close(failed=False)
    assert inner.numbers == [0, 1, 2, 3]
    assert inner.events[-2] == RESULTS


def test_lines_are_described_from_the_first_and_marked_as_new_or_not(tmp_path):
    seen = []

    def describe(line, is_new):
        seen.append((line.number, is_new))
        return line

    attempt(tmp_path, range(0, 3), describe=describe)
    assert seen == [(0, True), (1, True), (2, True)]
    seen.clear()
    attempt(tmp_path, range(2, 5), describe=describe)
    assert seen == [(0, False), (1, False), (2, False), (3, True), (4, True)]


def failing(failures, error):
    """Returns a tracker that raises at lines, `failures` times for each."""

    class Failing(Recorder):
        def log(self, line):
            if failures.get(line.number, 0):
                failures[line.number] -= 1
                raise error
            super().log(line)

    return Failing


@pytest.mark.parametrize(
    "error", [ConnectionError("the network\nis gone"), SystemExit(3)]
)
def test_a_tracker_that_fails_for_good_costs_a_line_and_nothing_else(
    tmp_path, capsys, error
):
    inner = attempt(tmp_path, range(0, 8), failing({3: 10**6}, error))
    assert steps_of(tmp_path) == list(range(8))
    assert inner.numbers == [0, 1, 2]
    first, last = capsys.readouterr().err.splitlines()
    said = " ".join(str(error).split())
    assert first == (
        f"tracker recorder: {type(error).__name__}: {said}; the run continues, "
        "metrics.jsonl has every line, and the next line triggers another try"
    )
    assert "lacks the last 5 of 8 lines" in last
    assert inner.events[-1] == "close failed=False"
    # The next attempt sends them.
    assert attempt(tmp_path, range(8, 9)).numbers == [3, 4, 5, 6, 7, 8]


def test_a_tracker_that_works_again_gets_what_it_missed(tmp_path, capsys):
    shaky = failing({2: 1, 4: 1}, ConnectionError("gone"))
    inner = attempt(tmp_path, range(0, 8), shaky)
    assert inner.numbers == list(range(8))
    assert capsys.readouterr().err.count("\n") == 1


def test_results_that_do_not_arrive_are_not_marked(tmp_path, capsys):
    class Late(Recorder):
        def finish(self, results):
            raise TimeoutError("slow")

    tracker, _ = background_of(tmp_path, Late)
    tracker.finish(RunResults(num_lines=0, numbers={}, tables={}, files=()))
    tracker.close(failed=False)
    assert "TimeoutError: slow" in capsys.readouterr().err
    assert not TrackingState.open(tmp_path, parent=None).finished


def test_results_that_are_lost_at_the_end_are_not_marked(tmp_path, capsys):
    class Cut(Recorder):
        def close(self, *, failed):
            raise TimeoutError("not uploaded")

    tracker, _ = background_of(tmp_path, Cut)
    tracker.finish(RunResults(num_lines=0, numbers={}, tables={}, files=()))
    tracker.close(failed=False)
    assert capsys.readouterr().err == (
        "tracker recorder: TimeoutError: not uploaded while closing; run the same "
        "command to try again\n"
    )
    assert not TrackingState.open(tmp_path, parent=None).finished


class Blocked(Recorder):
    """Holds every line until it is released."""

    def __init__(self, run):
        super().__init__(run)
        self.go = threading.Event()

    def log(self, line):
        self.go.wait()
        super().log(line)


def test_a_tracker_that_hangs_holds_up_nothing_and_is_left(tmp_path, capsys):
    inner = attempt(tmp_path, range(0, 5), Blocked, patience_s=0.01)
    assert steps_of(tmp_path) == list(range(5))
    err = capsys.readouterr().err
    assert "tracker recorder: no answer for 0.01 s; giving up on it" in err
    assert "lacks the last 5 of 5 lines" in err
    inner.go.set()


def test_a_tracker_that_lags_far_behind_reads_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "_MAX_PENDING", 3)
    tracker, inner = background_of(tmp_path, Blocked)
    with MetricsWriter(tmp_path, trackers=(tracker,)) as writer:
        for step in range(20):
            writer.write("train", step, {"loss": step / 7})
            assert len(tracker._pending) <= 3
        inner.go.set()
        tracker.close(failed=False)
    assert inner.numbers == list(range(20))


class Unopened(Recorder):
    """Opens at the second attempt."""

    attempts = 0

    def open(self):
        self.attempts += 1
        if self.attempts == 1:
            raise ConnectionError("no network")
        return super().open()


def test_a_run_does_not_begin_where_its_tracker_does_not_open(tmp_path):
    with pytest.raises(ConfigError, match=r"recorder does not open: Conn.*no network"):
        background_of(tmp_path, Unopened)


def test_a_run_that_was_tracked_goes_on_where_its_tracker_does_not_open(
    tmp_path, capsys
):
    attempt(tmp_path, range(0, 3))
    inner = attempt(tmp_path, range(3, 6), Unopened)
    assert inner.numbers == [3, 4, 5]
    assert "no network; the run continues" in capsys.readouterr().err


def test_a_failed_run_is_closed_as_failed(tmp_path):
    tracker, inner = background_of(tmp_path)
    tracker.close(failed=True)
    assert inner.events == ["open", "close failed=True"]


def test_a_process_that_is_not_the_first_hands_over_nothing(tmp_path, monkeypatch):
    tracker, inner = background_of(tmp_path)
    monkeypatch.setattr(metrics, "is_primary", lambda: False)
    with MetricsWriter(tmp_path, trackers=(tracker,)) as writer:
        writer.rewind("train", 0)
        writer.write_samples("train", 0, texts={"a": "b"}, histograms={})
        writer.write("train", 0, {"loss": 1.0})
    tracker.close(failed=False)
    assert inner.numbers == []
    assert not (tmp_path / "metrics.jsonl").exists()


def test_the_writer_hands_samples_and_rewinds_to_its_trackers(tmp_path):
    told = []
    tracker = types.SimpleNamespace(
        log=lambda line: told.append(line.step),
        log_samples=lambda stage, step, **kinds: told.append((stage, step, kinds)),
        rewind=told.append,
    )
    for start in (0, 1):
        with MetricsWriter(tmp_path, trackers=(tracker,)) as writer:
            writer.rewind("train", start)
            for step in range(start, 3):
                writer.write("train", step, {"loss": 1.0})
            writer.write("eval", 0, {"loss": 1.0})
            writer.write_samples("train", 9, texts={}, histograms={})
    samples = ("train", 9, {"texts": {}, "histograms": {}})
    attempt_of = {0: [{}, {}, 0, 1, 2, 0, samples], 1: [1, 2, 0, samples]}
    assert told == [*attempt_of[0], {}, {"train": 1, "eval": 0}, *attempt_of[1]]
