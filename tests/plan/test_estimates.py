"""Estimates of memory and time, against numbers by hand and the compiler's report."""

import dataclasses

import jax
import pytest
from flax import nnx

from rlvr_jax.config import (
    Config,
    DifficultyConfig,
    EvalConfig,
    LoRAConfig,
    LossConfig,
    ModelConfig,
    RFGOConfig,
    SamplerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.models import Transformer
from rlvr_jax.plan.duration import stage_durations
from rlvr_jax.plan.peak_memory import memory_phases
from rlvr_jax.plan.run_shapes import RunShapes
from rlvr_jax.plan.speed import Speed
from rlvr_jax.plan.step_programs import StepPrograms
from rlvr_jax.plan.widths import Widths
from rlvr_jax.probe import SAEProbeConfig
from rlvr_jax.sampler import SamplerLayout, update_mesh

L, D, F, H, V = 2, 64, 192, 16, 50
N, K = 4, 2
S, T, G, P = 32, 48, 4, 16  # 8 virtual devices: two prompts on each
MODEL = ModelConfig(
    num_layers=L,
    hidden_size=D,
    intermediate_size=F,
    num_heads=N,
    num_kv_heads=K,
    head_dim=H,
    scan_layers=True,
    max_seq_len=S + T,
)
SAMPLING = SamplingConfig(max_new_tokens=T)
CONFIG = Config(
    model=MODEL,
    sft=SFTConfig(steps=0),
    train=TrainConfig(steps=3, batch_size=P, group_size=G, sampling=SAMPLING),
    eval=EvalConfig(num_problems=40, num_samples=8, batch_size=32, sampling=SAMPLING),
)
LAYER = D * (2 * N + 2 * K) * H + 3 * D * F  # weights
PRODUCTS = L * LAYER + V * D
TOTAL = PRODUCTS + (2 * L + 1) * D  # and norms


def shapes(config, **more):
    mesh = update_mesh(config)
    policy = nnx.eval_shape(lambda: Transformer(config.model, V, nnx.Rngs(0)))
    values = {
        "config": config,
        "policy": policy,
        "mesh": mesh,
        "layout": SamplerLayout.from_config(config, policy, mesh),
        "vocab_size": V,
        "widths": Widths.from_config(config),
        "on_cpu": True,
    }
    return RunShapes(**values | more)


def phases(config, **more):
    return memory_phases(shapes(config, **more))


def with_train(**settings):
    train = dataclasses.replace(CONFIG.train, **settings)
    return dataclasses.replace(CONFIG, train=train)


def test_weights_and_caches_are_counted_by_hand():
    """Each of 8 devices has all weights, and an eighth of the rows."""
    found = phases(CONFIG)
    assert found.keys() == {"rollouts", "update", "eval"}
    update = found["update"]
    assert update["parameters"] == update["gradients"] == 4 * TOTAL
    assert update["optimizer"] == 8 * TOTAL
    tokens = {"rollouts": P * G * T, "eval": 32 * 8 * T}
    prompts = {"rollouts": P * S, "eval": 32 * S}
    for name, count in tokens.items():
        sizes, cache = found[name], 2 * L * K * H * 4
        assert sizes["completion cache"] == int(1.05 * count * cache / 8)
        assert sizes["prompt cache"] == prompts[name] * cache / 8
        assert "gradients" not in sizes


def test_stages_that_run_have_a_phase():
    config = dataclasses.replace(
        CONFIG,
        sft=SFTConfig(steps=1, batch_size=32),
        difficulty=DifficultyConfig(num_samples=16),
        probe=SAEProbeConfig(layer=1),
    )
    found = phases(config)
    names = ("sft", "difficulty", "probe", "probe fit", "rollouts", "update", "eval")
    assert (*found,) == names
    caches = [found[name]["completion cache"] for name in ("difficulty", "eval")]
    assert caches[0] == pytest.approx(2 * caches[1], abs=1)  # 16 samples, not 8
    replicas, Z = 2, 2048
    weights, latents = 2 * D * Z, 4 * 1024 * Z
    assert found["probe fit"]["autoencoders"] == (
        4 * replicas * (4 * weights + latents) // 8
    )
    assert config.probe.fit_flops(D) == 6 * replicas * 2 * 1024 * 2000 * weights


def test_adapters_shrink_the_update_and_slots_the_cache():
    whole, adapted = (
        phases(config)["update"]
        for config in (CONFIG, with_train(lora=LoRAConfig(rank=2)))
    )
    for part in ("gradients", "new gradients", "optimizer"):
        assert adapted[part] < whole[part] / 4
    config = dataclasses.replace(CONFIG, sampler=SamplerConfig(slots=32))
    few, all_rows = phases(config)["eval"], phases(CONFIG)["eval"]
    assert 8 * few["completion cache"] == pytest.approx(
        all_rows["completion cache"], rel=1e-3
    )
    assert few["prompt cache"] == 2 * all_rows["prompt cache"]  # and one for each slot


def test_activations_shrink_with_micro_batches_and_limits():
    whole = phases(CONFIG)["update"]["activations"]
    half = phases(with_train(grad_accum_steps=2))["update"]["activations"]
    assert whole == 2 * half
    assert phases(with_train(activation_gib=1e-6))["update"]["activations"] == half
    one = with_train(activation_gib=1e-6)  # a limit for CPU devices alone
    assert phases(one, on_cpu=False) == phases(CONFIG, on_cpu=False)
    by_tokens = with_train(micro_batch_tokens=8 * (S + G * T))
    assert phases(by_tokens)["update"]["activations"] == half


@pytest.mark.parametrize("scan", [True, False])
def test_the_estimate_is_near_what_the_compiler_reserves(scan):
    config = dataclasses.replace(
        CONFIG, model=dataclasses.replace(MODEL, scan_layers=scan)
    )
    run = shapes(config)
    with jax.set_mesh(run.mesh):
        lower = StepPrograms(config, run.mesh, jax.devices()).lowerings()
        needed = {
            name: lower[name]().compile().memory_analysis().temp_size_in_bytes
            for name in ("sampler", "gradient")
        }
    kept = ("parameters", "optimizer", "gradients")
    for phase, name in (("rollouts", "sampler"), ("update", "gradient")):
        parts = memory_phases(run)[phase]
        estimate = sum(parts[part] for part in parts if part not in kept)
        assert 0.7 < estimate / needed[name] < 1.5, (phase, estimate, needed)


def test_a_step_that_reads_the_reference_policy_has_its_program():
    """And its gradient takes features of every token, 16 by default."""
    rfgo = RFGOConfig(lambda_p=0.1, features_of="reference")
    config = dataclasses.replace(
        CONFIG,
        train=dataclasses.replace(CONFIG.train, rfgo=rfgo),
        probe=SAEProbeConfig(layer=1),
    )
    mesh = shapes(config).mesh
    with jax.set_mesh(mesh):
        lower = StepPrograms(config, mesh, jax.devices()).lowerings()
        assert "scorer_features" in lower
        text = lower["gradient"]().as_text()
    assert f"tensor<{P * G}x{T}x16xf32>" in text


SPEED = Speed(flops=1e9, bytes_per_s=1e15)  # nothing waits for memory


def seconds(config, speed=SPEED, problems=100, **more):
    found = stage_durations(shapes(config, **more), speed, num_train_problems=problems)
    return {stage: each.work for stage, each in found.items()}


def test_each_stage_is_its_flops_over_what_is_reached():
    """Sampling reaches 0.3 of the speed, products over whole texts 0.4."""
    config = dataclasses.replace(
        CONFIG,
        sft=SFTConfig(steps=7, batch_size=32),
        difficulty=DifficultyConfig(num_samples=4),
    )
    found = seconds(config)
    flops = 2 * PRODUCTS

    def sampling(batches, prompts, samples):
        decode = prompts * samples * T * flops / 0.3e9
        return batches * (decode + prompts * S * flops / 0.4e9)

    assert found["sft"] == pytest.approx(7 * 32 * (S + T) * 3 * flops / 0.4e9)
    assert found["difficulty"] == pytest.approx(sampling(4, 32, 4))  # of 100 problems
    update = P * (S + G * T) * 3 * flops / 0.4e9
    assert found["train"] == pytest.approx(3 * (sampling(1, P, G) + update))
    assert found["eval"] == pytest.approx(2 * sampling(2, 32, 8))  # before and after


def test_passes_over_an_update_are_counted():
    """Forward is 2 FLOPs for each weight, backward 4, or 2 if weights are frozen."""
    rollouts = seconds(with_train(lora=LoRAConfig(rank=2)))["train"] / 3
    one = P * (S + G * T) * PRODUCTS / 0.4e9  # a FLOP for each weight
    plain = rollouts - 4 * one
    for settings, flops in (
        ({}, 6),
        ({"num_epochs": 2, "old_logprobs": "trainer"}, 14),
        ({"loss": LossConfig(kl_coef=0.1)}, 8),
    ):
        found = seconds(with_train(**settings))["train"] / 3
        assert found == pytest.approx(plain + flops * one), settings


def test_decoding_may_wait_for_memory():
    """All 8 devices read all weights at each of T steps; the caches are small."""
    slow = Speed(flops=1e15, bytes_per_s=1e6)
    config = with_train(batch_size=8, group_size=2)
    moved = 8 * 4 * PRODUCTS + 4 * 10 * 16 * V
    moved += 2 * L * K * H * 4 * (16 * T / 2 + 8 * S)
    found = seconds(config, slow)["train"] / 3
    assert found == pytest.approx(T * moved / 0.6e6, rel=1e-3)


def test_evaluations_during_rl_count():
    found = [
        seconds(
            dataclasses.replace(
                with_train(steps=steps),
                eval=dataclasses.replace(CONFIG.eval, every=every),
            )
        )["eval"]
        for steps, every in ((0, 0), (10, 0), (9, 5), (10, 5))
    ]
    assert [round(time / found[0]) for time in found] == [1, 2, 3, 4]


def test_the_speed_of_this_machine_is_measured():
    """A core multiplies faster than 10 million and slower than 10^13 numbers."""
    speed = Speed.measure("float32", jax.devices())
    assert 1e7 < speed.flops < 1e13 * len(jax.devices())
    assert 1e7 < speed.bytes_per_s < 1e13
