"""Predicted seconds of slices that are not there: lines, counts, exponents."""

import pytest

from benchmarks.scaling import (
    extrapolate_costs,
    fit_exponent,
    format_table,
    load_recipe,
    predict_cell,
    runs_per_step,
)
from rlvr_jax.plan.topology import parse_topology


def fake_report(cell, overrides):
    """A layer costs 10 FLOPs, 4 bytes and 1 on the links; the rest 100, 8 and 2."""
    layers = overrides["model.num_layers"]
    costs = {
        "flops": 100 + 10 * layers,
        "hbm_bytes": 8 + 4 * layers,
        "collective_bytes": 2 + layers,
    }
    return {
        "programs": dict.fromkeys(("sampler", "gradient", "update", "probe_fit"), costs)
    }


def test_a_depth_lies_on_the_line_through_two_others():
    programs = [
        fake_report("", {"model.num_layers": depth})["programs"]["sampler"]
        for depth in (2, 4)
    ]
    costs = extrapolate_costs(programs, 28)
    assert (costs.flops, costs.hbm_bytes, costs.collective_bytes) == (380, 120, 30)


def test_a_step_runs_each_program_as_often_as_its_recipe_says():
    """medium: 128 prompts in 8 minibatches; 24 layers of costs as above."""
    config = load_recipe("medium", {})
    runs = runs_per_step(config)
    assert (runs["gradient"], runs["update"], runs["scorer"]) == (8, 8, 8)
    cut = load_recipe("medium", {"train.grad_accum_steps": 2, "train.num_epochs": 3})
    runs = runs_per_step(cut)
    assert (runs["gradient"], runs["update"], runs["scorer"]) == (48, 24, 16)
    found = predict_cell("medium@v5e:4x4", {}, compile_cell=fake_report)
    chip = parse_topology("v5e:4x4").chip
    flops, size, links = 100 + 280, 8 + 112, 2 + 28
    once = (
        flops / chip.bfloat16_flops,
        size / chip.hbm_bytes_per_s,
        links / chip.link_bytes_per_s,
    )
    assert found.at_best["sampler"] == pytest.approx(max(once))
    assert found.in_turn["gradient"] == pytest.approx(8 * sum(once))
    assert set(found.in_turn) == {"sampler", "gradient", "update"}  # of a step
    assert found.tokens == 128 * 8 * 3072
    assert "| medium@v5e:4x4 |" in format_table([found])


def test_the_exponent_of_a_power_is_found():
    assert fit_exponent(3.0, 3.0 * 2**1.5, 2.0) == pytest.approx(1.5)
    assert fit_exponent(3.0, 3.0, 2.0) == 0.0
