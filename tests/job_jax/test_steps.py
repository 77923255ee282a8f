"""The bookkeeping of a stage: input of a resumed attempt, and saved states."""

import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.checkpoint import StageCheckpoints
from job_jax.command import StoppedError
from job_jax.config import CheckpointConfig
from job_jax.digests import DIGESTS
from job_jax.metrics import MetricsWriter
from job_jax.metrics_file import read_metrics
from job_jax.steps import StageSteps, StopSignal


def abstract_state():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return {"x": jax.ShapeDtypeStruct((1024,), jnp.float32, sharding=sharding)}


def zeros():
    return {"x": jnp.zeros(1024, jnp.float32)}


def never_called():
    raise AssertionError("a resumed stage must not initialize its state")


def attempt(
    workdir,
    *,
    init,
    stop_after=None,
    every=2,
    num_steps=4,
    after_step=None,
    settle=False,
    every_minutes=0.0,
    clock=lambda: 0.0,
):
    """Runs the stage; returns the first and last state and the host states saved."""
    signal, saved = StopSignal(), []
    with (
        MetricsWriter(workdir) as writer,
        StageSteps(
            "train",
            num_steps,
            directory=workdir / "checkpoints",
            checkpoint=CheckpointConfig(every=every, every_minutes=every_minutes),
            progress_every=1,
            writer=writer,
            stop_signal=signal,
            after_step=after_step,
            clock=clock,
        ) as steps,
    ):
        first, host = steps.resume_or_init(init, abstract_state)
        state = first
        for step in steps:
            state = {"x": state["x"] + 1}
            if step == stop_after:
                signal._requested.set()

            def host_state(step=step):
                saved.append(step)
                return {"last": step}

            steps.commit(
                step,
                state,
                {"loss": 0.0},
                host_state=host_state,
                displayed={},
                tokens=1,
            )
            if settle:
                steps._checkpoints.wait()
    return first, host, state, saved


def test_a_resumed_stage_restores_and_never_initializes(tmp_path):
    with pytest.raises(StoppedError):
        attempt(
            tmp_path, init=lambda: {"x": jnp.zeros(1024, jnp.float32)}, stop_after=2
        )
    first, host, state, _ = attempt(tmp_path, init=never_called)
    np.testing.assert_array_equal(first["x"], np.full(1024, 3.0))
    np.testing.assert_array_equal(state["x"], np.full(1024, 4.0))
    assert host == {"last": 2}


def test_seconds_of_all_attempts_add_up(tmp_path, monkeypatch):
    """The clock ticks at each reading.

    The first attempt reads it at its start and for the checkpoint after step 3, which
    has 1 s. The second attempt reads it twice more: 2 s in all.
    """
    clock = types.SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr("job_jax.steps.time", clock)
    with pytest.raises(StoppedError):
        attempt(tmp_path, init=zeros, stop_after=2, every=50)
    attempt(tmp_path, init=never_called, every=50)
    with StageCheckpoints(tmp_path / "checkpoints/train") as checkpoints:
        found = [checkpoints.restore_host_state(step)["seconds"] for step in (3, 4)]
    assert found == [1, 2]


class Clock:
    """A clock that moves `step_minutes` at each reading after the first."""

    def __init__(self, step_minutes):
        self.minutes, self.step_minutes = -step_minutes, step_minutes

    def __call__(self):
        self.minutes += self.step_minutes
        return 60 * self.minutes


@pytest.mark.parametrize(
    ("every_minutes", "saved"),
    [
        (0.0, [6]),  # off
        # It is read at the start, after every step, and after a checkpoint: 4 minutes
        # a step, and 4 more for the checkpoint, which do not count.
        (10.0, [2, 5, 6]),
        (12.0, [2, 5, 6]),
        (12.1, [3, 6]),
        (4.0, [0, 1, 2, 3, 4, 5, 6]),
        (1000.0, [6]),
    ],
)
def test_a_checkpoint_is_saved_after_so_much_time(tmp_path, every_minutes, saved):
    *_, steps = attempt(
        tmp_path,
        init=zeros,
        every=50,
        num_steps=7,
        every_minutes=every_minutes,
        clock=Clock(4),
        settle=True,
    )
    assert steps == saved


def test_a_planned_checkpoint_starts_the_time_again(tmp_path):
    *_, steps = attempt(
        tmp_path,
        init=zeros,
        every=2,
        num_steps=5,
        every_minutes=9.0,
        clock=Clock(4),
        settle=True,
    )
    assert steps == [1, 3, 4]


def test_a_run_killed_before_its_first_planned_checkpoint_keeps_one(tmp_path):
    """The killed attempt ends without notice; the next one continues from step 3."""
    killed = RuntimeError("killed")
    calls = []

    def die():
        calls.append(1)
        if len(calls) == 4:
            raise killed

    with pytest.raises(RuntimeError, match="killed"):
        attempt(
            tmp_path,
            init=zeros,
            every=50,
            num_steps=40,
            every_minutes=10.0,
            clock=Clock(4),
            settle=True,
            after_step=die,
        )
    first, host, state, _ = attempt(tmp_path, init=never_called, num_steps=40, every=50)
    assert host == {"last": 2}
    np.testing.assert_array_equal(first["x"], np.full(1024, 3.0))
    np.testing.assert_array_equal(state["x"], np.full(1024, 40.0))


def test_all_processes_follow_the_clock_of_the_first(tmp_path, monkeypatch):
    """The time of this process is not up but process 0's is, or the other way round."""
    for answer, expected in ((True, [0, 1]), (False, [1])):
        asked, workdir = [], tmp_path / str(answer)
        workdir.mkdir()

        def broadcast(read, answer=answer, asked=asked):
            value = read()
            asked.append(value)
            return answer if isinstance(value, bool) else value

        monkeypatch.setattr("job_jax.steps.processes.broadcast", broadcast)
        *_, steps = attempt(
            workdir,
            init=zeros,
            every=50,
            num_steps=2,
            every_minutes=2.0,
            clock=Clock(0 if answer else 4),
            settle=True,
        )
        assert steps == expected
        assert asked[-1] is not answer


def test_a_resumed_stage_reports_every_step_once(tmp_path):
    """Steps 0 to 2 are in the checkpoint; step 3 was reported and then lost."""
    with pytest.raises(StoppedError):
        attempt(tmp_path, init=zeros, stop_after=2)
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", 3, {"loss": 9.0})
    attempt(tmp_path, init=never_called)
    lines = [
        (line["step"], line["loss"])
        for line in read_metrics(tmp_path / "metrics.jsonl")
    ]
    assert lines == [(0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0)]


def test_a_signal_in_the_last_step_finds_the_stage_finished(tmp_path):
    *_, state, _ = attempt(tmp_path, init=zeros, stop_after=3)
    np.testing.assert_array_equal(state["x"], np.full(1024, 4.0))


def test_a_resumed_stage_holds_its_state_once(tmp_path):
    """After the restore, the live bytes are as many as one state has."""
    with pytest.raises(StoppedError):
        attempt(
            tmp_path, init=lambda: {"x": jnp.zeros(1024, jnp.float32)}, stop_after=2
        )
    before = sum(array.nbytes for array in jax.live_arrays())
    with (
        MetricsWriter(tmp_path) as writer,
        StageSteps(
            "train",
            4,
            directory=tmp_path / "checkpoints",
            checkpoint=CheckpointConfig(),
            progress_every=1,
            writer=writer,
            stop_signal=StopSignal(),
        ) as steps,
    ):
        state, _ = steps.resume_or_init(never_called, abstract_state)
        held = sum(array.nbytes for array in jax.live_arrays()) - before
        assert held == state["x"].nbytes


def test_host_state_is_made_only_for_checkpoints(tmp_path):
    *_, saved = attempt(
        tmp_path, init=lambda: {"x": jnp.zeros(1024, jnp.float32)}, num_steps=5
    )
    assert saved == [1, 3, 4]


@pytest.mark.parametrize("settle", [False, True])
def test_only_complete_checkpoints_are_found_after_a_step(tmp_path, settle):
    found, held = [], []
    folder = tmp_path / "checkpoints" / "train"

    def after_step():
        there = [path for path in folder.iterdir() if path.name != DIGESTS]
        found.append(sorted(path.name for path in there))
        held.extend(len([*path.rglob("*")]) for path in there)

    attempt(
        tmp_path,
        init=lambda: {"x": jnp.zeros(1024, jnp.float32)},
        num_steps=7,
        after_step=after_step,
        settle=settle,
    )
    assert all(name.isdigit() for names in found for name in names)
    assert len(set(held)) <= 1  # none half written, none half removed
    if settle:  # saved after steps 2, 4, 6, 7; no check while a save is running
        assert [names[-1:] for names in found] == [[], ["2"], ["4"]]
