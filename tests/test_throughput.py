"""What is counted for the rates: weights by hand, seconds by part."""

import jax
import pytest
from flax import nnx

from job_jax.compiles import CompileCounter
from rlvr_jax import throughput
from rlvr_jax.config import ModelConfig
from rlvr_jax.models import Transformer

TINY = ModelConfig(layers=3, width=8, mlp_width=16, heads=4, kv_heads=2, head_width=6)


def test_matmul_weights_are_all_parameters_but_the_norms():
    vocab_size = 11
    policy = nnx.eval_shape(lambda: Transformer(TINY, vocab_size, nnx.Rngs(0)))
    total = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(policy)))
    norms = (2 * TINY.layers + 1) * TINY.width
    assert throughput.matmul_weights(TINY, vocab_size) == total - norms


def test_counts_add_up_and_absent_parts_are_zero():
    clock = throughput.Clock()
    clock.seconds = {"rollout_s": 2.0, "update_s": 3.0}
    total = throughput.nothing()
    for _ in range(2):
        total = throughput.add(total, clock, sampled=300, learnt=100)
    assert total == {
        "steps": 2.0,
        "sampled": 600.0,
        "learnt": 200.0,
        "rollout_s": 4.0,
        "reshard_s": 0.0,
        "judge_s": 0.0,
        "update_s": 6.0,
        "probe_s": 0.0,
    }


def test_rates_are_tokens_over_the_seconds_of_their_part():
    total = throughput.nothing() | {
        "steps": 2.0,
        "sampled": 600.0,
        "learnt": 200.0,
        "rollout_s": 4.0,
        "judge_s": 1.0,
        "update_s": 5.0,
    }
    found = throughput.summary(total, model=TINY, vocab_size=11)
    # What refills draw and drop takes time to sample, and none to learn from.
    assert found["rollout_tokens_per_s"] == 150
    assert found["update_tokens_per_s"] == 40
    assert found["step_s"] == 5
    assert found["judge_share"] == 0.1
    flops = 6 * throughput.matmul_weights(TINY, 11) * 40
    assert found["mfu"] == pytest.approx(flops / found["peak_flops"])


def test_a_run_without_steps_has_no_rates():
    assert throughput.summary(throughput.nothing(), model=TINY, vocab_size=11) == {}


def test_a_compilation_is_counted_once():
    counter = CompileCounter()
    program = jax.jit(lambda x: x * 3 + 1)
    program(2.0)
    after_first = counter.count
    program(5.0)
    assert after_first >= 1
    assert counter.count == after_first
