"""What is counted for the rates: weights by hand, seconds by part."""

import jax
import pytest
from flax import nnx

from job_jax.metrics import CompileCounter
from rlvr_jax.config import ModelConfig
from rlvr_jax.models import Transformer
from rlvr_jax.run.throughput import (
    StepTimer,
    Timing,
    num_matmul_weights,
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
    }
    assert Timing(**timing.to_json()) == timing


def test_rates_are_tokens_over_the_seconds_of_their_phase():
    timing = Timing(
        steps=2,
        sampled_tokens=600,
        trained_tokens=200,
        seconds=Timing().seconds | {"rollout": 4.0, "verify": 1.0, "update": 5.0},
    )
    rates = summary(timing, model=TINY, vocab_size=11)
    # Groups that dynamic sampling drops take time to sample, and none to learn from.
    assert rates["rollout_tokens_per_s"] == 150
    assert rates["update_tokens_per_s"] == 40
    assert rates["step_s"] == 5
    assert rates["verify_share"] == 0.1
    flops = 6 * num_matmul_weights(TINY, 11) * 40
    assert rates["mfu"] == pytest.approx(flops / rates["peak_flops"])


def test_a_run_without_steps_has_no_rates():
    assert summary(Timing(), model=TINY, vocab_size=11) == {}


def test_a_compilation_is_counted_once():
    counter = CompileCounter()
    program = jax.jit(lambda x: x * 3 + 1)
    program(2.0)
    after_first = counter.count
    program(5.0)
    assert after_first >= 1
    assert counter.count == after_first
