"""A checkpoint holds everything that a training step leaves to the next."""

import dataclasses
import json
import types

import numpy as np
import pytest

from rlvr_jax.config import DifficultyConfig
from rlvr_jax.data import ProblemOutcome, difficulty
from rlvr_jax.metrics.doctor import DoctorState
from rlvr_jax.probe.rfgo_state import RFGOState
from rlvr_jax.rollouts.draw import DrawnBatch
from rlvr_jax.run.throughput import Timing
from rlvr_jax.stages import trainer_state
from rlvr_jax.stages.trainer_state import TrainerState


@pytest.fixture
def state():
    outcomes = [
        ProblemOutcome(problem_index=1, num_correct=1, num_graded=3, answer_entropy=0.5)
    ]
    estimates = difficulty.record_outcomes(
        difficulty.init_difficulty(3),
        outcomes,
        step=4,
        num_batches=2,
        config=DifficultyConfig(),
    )
    return TrainerState(
        device="device",
        difficulty=estimates,
        doctor=DoctorState(num_steps=5),
        timing=Timing(steps=3),
        rfgo=RFGOState(mean_square=(0.25, 4.0), num_proxy_groups=2, num_proxy_steps=1),
    )


def test_what_is_read_is_what_was_written_in_every_part(state):
    written = json.loads(json.dumps(state.to_json()))
    read = TrainerState.from_json("other device", written, pool=None)
    assert read.device == "other device"
    assert json.dumps(read.to_json()) == json.dumps(written)
    assert read.doctor == state.doctor != DoctorState()
    assert read.timing == state.timing != Timing()
    assert read.rfgo == state.rfgo
    np.testing.assert_array_equal(read.difficulty.mean, state.difficulty.mean)
    assert read.difficulty.num_batches == 2


def test_each_part_is_written_by_its_own_name(state):
    """A part that changed changes its own entry and no other."""
    changed = {
        "difficulty": dataclasses.replace(state.difficulty, num_batches=9),
        "doctor": DoctorState(num_steps=6),
        "timing": Timing(steps=4),
        "rfgo": None,
    }
    before = state.to_json()
    for name, value in changed.items():
        after = dataclasses.replace(state, **{name: value}).to_json()
        assert {key for key in before if before[key] != after[key]} == {name}


def test_batches_drawn_ahead_come_back_in_their_order(state, monkeypatch):
    drawn = tuple(
        types.SimpleNamespace(to_json=lambda name=name: {"name": name})
        for name in ("first", "second")
    )
    ahead = dataclasses.replace(state, pending=drawn)
    monkeypatch.setattr(
        DrawnBatch, "from_json", classmethod(lambda cls, pool, one: (pool, one))
    )
    read = trainer_state.TrainerState.from_json("d", ahead.to_json(), pool="pool")
    assert read.pending == (
        ("pool", {"name": "first"}),
        ("pool", {"name": "second"}),
    )
