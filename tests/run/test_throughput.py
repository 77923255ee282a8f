"""Counts behind the rates: weights by hand, seconds by phase."""

import math
import types

import jax
import pytest
from flax import nnx

from job_jax.metrics import CompileCounter
from rlvr_jax.config import ModelConfig
from rlvr_jax.models import Transformer
from rlvr_jax.run.throughput import (
    InFlight,
    StepTimer,
    Timing,
    num_matmul_weights,
    overlap_seconds,
    summary,
)

TINY = ModelConfig(
    num_layers=3,
    hidden_size=8,
    intermediate_size=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
)


def test_matmul_weights_are_all_parameters_but_the_norms():
    vocab_size = 11
    policy = nnx.eval_shape(lambda: Transformer(TINY, vocab_size, nnx.Rngs(0)))
    total = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(policy)))
    norms = (2 * TINY.num_layers + 1) * TINY.hidden_size
    assert num_matmul_weights(TINY, vocab_size) == total - norms


def test_counts_add_up_and_absent_phases_are_zero():
    timer = StepTimer()
    timer.seconds = {"rollout": 2.0, "update": 3.0}
    timing = Timing()
    for _ in range(2):
        timing = timing.add_step(timer, sampled_tokens=300, trained_tokens=100)
    assert timing.to_json() == {
        "steps": 2,
        "sampled_tokens": 600,
        "trained_tokens": 200,
        "seconds": {
            "reshard": 0.0,
            "rollout": 4.0,
            "verify": 0.0,
            "update": 6.0,
            "probe": 0.0,
        },
        "overlap_seconds": 0.0,
    }
    assert Timing(**timing.to_json()) == timing


def rates_of(timing, **changes):
    """Returns the rates on this process's devices, which are all, in one epoch."""
    devices = jax.devices()
    settings = {"devices": devices, "num_devices": len(devices), "num_epochs": 1}
    return summary(timing, model=TINY, vocab_size=11, **(settings | changes))


def test_rates_are_tokens_over_the_seconds_of_their_phase():
    timing = Timing(
        steps=2,
        sampled_tokens=600,
        trained_tokens=200,
        seconds=Timing().seconds | {"rollout": 4.0, "verify": 1.0, "update": 5.0},
    )
    rates = rates_of(timing)
    # Groups that dynamic sampling drops take time to sample, and are never trained on.
    assert rates["rollout_tokens_per_s"] == 150
    assert rates["update_tokens_per_s"] == 40
    assert rates["step_s"] == 5
    assert rates["verify_share"] == 0.1
    assert rates["overlap_share"] == 0
    flops = 6 * num_matmul_weights(TINY, 11) * 40
    assert rates["mfu"] == pytest.approx(flops / rates["peak_flops"])


def test_the_peak_is_of_all_processes_and_each_epoch_trains(monkeypatch):
    """A process has two of eight devices; each update reads its tokens twice."""
    monkeypatch.setattr("rlvr_jax.run.throughput.peak_flops", lambda *_: 1e6)
    seconds = Timing().seconds | {"rollout": 1.0, "update": 5.0}
    timing = Timing(steps=1, trained_tokens=200, seconds=seconds)
    rates = rates_of(timing, devices=[None] * 2, num_devices=8, num_epochs=2)
    assert rates["peak_flops"] == 4e6
    assert rates["update_tokens_per_s"] == 80
    assert rates["mfu"] == pytest.approx(6 * num_matmul_weights(TINY, 11) * 80 / 4e6)


def test_sampling_time_includes_waiting_and_overlap():
    timing = Timing(
        steps=2,
        sampled_tokens=600,
        trained_tokens=200,
        seconds=Timing().seconds | {"rollout": 1.0, "verify": 1.0, "update": 6.0},
        overlap_seconds=3.0,
    )
    rates = rates_of(timing)
    assert rates["rollout_tokens_per_s"] == 150
    assert rates["overlap_share"] == 0.375
    assert rates["step_s"] == 4


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([(0, 2)], 0),  # ended when the lap began
        ([(0, 5)], 3),  # started before the lap
        ([(1, math.inf)], 6),  # still running: both laps, but not the wait between them
        ([(3, 4), (9, 11)], 2),
        ([(0, 4), (3, 5)], 3),  # simultaneous ones count once
        ([(3, 5), (0, 4)], 3),
        ([(6, 8)], 0),  # while the host waited
    ],
)
def test_overlap_is_the_time_of_laps_during_which_anything_ran(spans, seconds):
    laps = [(2, 6), (8, 10)]
    assert overlap_seconds(laps, spans) == seconds


def test_a_finished_array_was_never_in_flight():
    start, end = InFlight(jax.block_until_ready(jax.numpy.ones(3))).span
    assert start == end


def test_waiting_does_not_count_as_overlap():
    timer = StepTimer()
    for phase in ("reshard", "rollout"):
        timer.lap(phase)
    running = types.SimpleNamespace(span=(0.0, math.inf))
    assert timer.overlap_seconds([running]) == 0
    timer.lap("verify")
    assert timer.overlap_seconds([running]) == timer.seconds["verify"] > 0


def test_a_run_without_steps_has_no_rates():
    assert rates_of(Timing()) == {}


def test_a_compilation_is_counted_once():
    counter = CompileCounter()
    program = jax.jit(lambda x: x * 3 + 1)
    program(2.0)
    after_first = counter.count
    program(5.0)
    assert after_first >= 1
    assert counter.count == after_first


def test_frozen_weights_save_2_of_6_flops(monkeypatch):
    monkeypatch.setattr("rlvr_jax.run.throughput.peak_flops", lambda *_: 1e6)
    seconds = Timing().seconds | {"rollout": 1.0, "update": 5.0}
    timing = Timing(steps=1, trained_tokens=200, seconds=seconds)
    for frozen, flops in ((False, 6), (True, 4)):
        rates = rates_of(timing, frozen=frozen)
        expected = flops * num_matmul_weights(TINY, 11) * 40 / 1e6
        assert rates["mfu"] == pytest.approx(expected)
