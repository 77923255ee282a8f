"""A command is never silent for over ten seconds, and prints no more than needed."""

import io
import threading

import pytest

from job_jax import working
from job_jax.metrics import Progress
from job_jax.working import QUIET_S, Narrator, start_timer


class Clock:
    """Returns the time it is set to."""

    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Scene:
    """A narrator with this object as its timer: time passes only in `wait`."""

    def __init__(self):
        self.clock, self.stream = Clock(), io.StringIO()
        self.narrator = Narrator(
            stream=self.stream, clock=self.clock, timer=self._start
        )
        self._due = None

    def _start(self, check):
        self._check, self._due = check, self.clock.now + QUIET_S

        def stop():
            self._due = None

        return stop

    def wait(self, seconds):
        """Lets time pass, and calls the timer whenever it is due."""
        end = self.clock.now + seconds
        while self._due is not None and self._due <= end:
            self.clock.now = self._due
            self._due += self._check()
        self.clock.now = end

    @property
    def lines(self):
        return self.stream.getvalue().splitlines()

    def progress(self, *args, **options):
        return Progress(
            *args,
            every=1,
            stream=options.pop("stream", self.stream),
            clock=self.clock,
            narrator=self.narrator,
            **options,
        )


@pytest.fixture
def scene():
    return Scene()


def test_work_of_less_than_ten_seconds_prints_nothing(scene):
    for _ in range(5):
        with scene.narrator.work("loading"):
            scene.wait(9.9)
    scene.wait(100)
    assert scene.lines == []


def test_longer_work_prints_a_line_every_ten_seconds_and_none_after_its_end(scene):
    with scene.narrator.work("compiling the sampler"):
        scene.wait(75)
    scene.wait(100)
    elapsed = ["10s", "20s", "30s", "40s", "50s", "1m00s", "1m10s"]
    assert scene.lines == [f"... compiling the sampler, {t} so far" for t in elapsed]


def test_short_works_in_a_row_are_no_silence_together(scene):
    """Each takes 4 s: after ten seconds the third one has been running for 2 s."""
    with scene.narrator.work("stage eval"):
        for activity in ("loading", "sampling", "grading", "sampling"):
            with scene.narrator.work(activity):
                scene.wait(4)
    assert scene.lines == ["... stage eval: grading, 2s so far"]


def test_between_inner_works_the_outer_one_is_named(scene):
    with scene.narrator.work("stage eval"):
        with scene.narrator.work("sampling"):
            scene.wait(3)
        scene.wait(8)
    assert scene.lines == ["... stage eval, 10s so far"]


def test_work_that_fails_is_over(scene):
    def divide():
        with scene.narrator.work("dividing"):
            scene.wait(12)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        divide()
    scene.wait(50)
    assert len(scene.lines) == 1


def test_a_progress_line_is_no_silence(scene):
    with scene.narrator.work("stage eval"):
        progress = scene.progress("eval", 4)
        for done in range(1, 5):
            scene.wait(9)
            progress.update(done, {})
        progress.close()
    assert not any(line.startswith("...") for line in scene.lines)


def test_steps_whose_line_is_not_due_are_silence():
    """A line every hundredth step, 6 s a step: the reminder names the step."""
    scene = Scene()
    with scene.narrator.work("stage train"):
        progress = Progress(
            "train",
            200,
            every=100,
            stream=scene.stream,
            clock=scene.clock,
            narrator=scene.narrator,
        )
        for done in range(1, 5):
            with scene.narrator.work("sampling"):
                scene.wait(6)
            progress.update(done, {})
    # Two steps compile; the third takes 6 s. At 20 s 197 are left, one for 2 s now.
    assert scene.lines == [
        "... sampling, 4s so far (train  1/200)",
        "... sampling, 2s so far (train  3/200  ETA 19m40s)",
    ]


def test_a_reminder_says_how_far_the_work_is_and_how_long_it_will_take(scene):
    with scene.narrator.work("stage eval"):
        progress = scene.progress("eval before", 64)
        for done in (16, 32):
            with scene.narrator.work("sampling"):
                scene.wait(8)
            progress.update(done, {})
        with scene.narrator.work("sampling"):
            scene.wait(21)
        progress.close()
        scene.wait(11)
    # The second batch took 8 s, so two more take 16 s: 10 s, then 20 s, have passed.
    assert scene.lines[2:] == [
        "... sampling, 10s so far (eval before  32/64  ETA 6s)",
        "... sampling, 20s so far (eval before  32/64  ETA 0s)",
        "... stage eval, 46s so far",
    ]


def test_on_a_terminal_the_progress_line_is_redrawn_with_what_is_done(scene):
    stream = Terminal()
    with scene.narrator.work("stage train"):
        progress = scene.progress("train", 2, stream=stream)
        with scene.narrator.work("sampling"):
            scene.wait(21)
        progress.update(1, {})
        progress.close()
    assert stream.getvalue() == (
        "\rtrain  0/2  (sampling, 10s so far)\x1b[K"
        "\rtrain  0/2  (sampling, 20s so far)\x1b[K"
        "\rtrain  1/2\x1b[K\n"
    )
    assert scene.lines == []


def test_a_progress_line_left_open_by_a_failure_goes_with_its_work(scene):
    def evaluate():
        with scene.narrator.work("stage eval"):
            scene.progress("eval", 4)
            raise ZeroDivisionError

    with scene.narrator.work("run"):
        with pytest.raises(ZeroDivisionError):
            evaluate()
        with scene.narrator.work("report"):
            scene.wait(10)
    assert scene.lines == ["... run: report, 10s so far"]


def test_of_several_processes_the_first_prints(scene, monkeypatch):
    monkeypatch.setattr(working, "is_primary", lambda: False)
    with scene.narrator.work("loading"):
        scene.wait(60)
    assert scene.lines == []


def test_the_timer_calls_until_it_is_stopped():
    """Real threads that wake at once: no call may follow the fourth."""
    called, enough = [], threading.Event()

    def check():
        called.append(None)
        if len(called) == 3:
            enough.set()
        return 0.0 if len(called) < 3 else 1e6

    stop = start_timer(check, first_s=0.0)
    assert enough.wait(60)
    stop()
    assert len(called) == 3
    assert not any(thread.name == "working" for thread in threading.enumerate())


def test_the_clock_starts_with_the_work_and_the_line_goes_to_standard_error(capsys):
    clock = Clock()
    due = []

    def timer(check):
        due.append(check)
        return due.clear

    narrator = Narrator(clock=clock, timer=timer)
    with narrator.work("loading"):
        assert due[0]() == QUIET_S
        clock.now += 4
        assert due[0]() == QUIET_S - 4
        clock.now += 7
        assert due[0]() == QUIET_S
    assert due == []
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "... loading, 11s so far\n")
