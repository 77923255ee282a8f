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
):
    """Runs the stage; returns the first and last state and the host states saved."""
    signal, saved = StopSignal(), []
    with (
        MetricsWriter(workdir) as writer,
        StageSteps(
            "train",
            num_steps,
            directory=workdir / "checkpoints",
            checkpoint=CheckpointConfig(every=every),
            progress_every=1,
            writer=writer,
            stop_signal=signal,
            after_step=after_step,
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
                displayed=(),
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

    The first attempt reads it at its start and for the checkpoints after steps 2 and 3,
    so the last checkpoint has 2 s. The second attempt reads it twice more: 3 s in all.
    """
    clock = types.SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr("job_jax.steps.time", clock)
    with pytest.raises(StoppedError):
        attempt(tmp_path, init=zeros, stop_after=2)
    attempt(tmp_path, init=never_called)
    with StageCheckpoints(tmp_path / "checkpoints/train") as checkpoints:
        found = [checkpoints.restore_host_state(step)["seconds"] for step in (3, 4)]
    assert found == [2, 3]


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
