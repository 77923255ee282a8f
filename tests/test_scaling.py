"""Predicted seconds of slices that are not there: lines, counts, exponents."""

import dataclasses

import pytest

from benchmarks.scaling import (
    decode_bytes,
    fit_exponent,
    format_table,
    keep_reports,
    kernel_flops,
    load_recipe,
    predict_cell,
    runs_per_step,
)
from rlvr_jax.config import SamplerConfig
from rlvr_jax.plan.topology import parse_topology

FLOPS, BYTES, LINKS = 1e15, 1e12, 1e11


def fake_report(cell, overrides):
    """Every program costs the same; one did not fit."""
    costs = {"flops": FLOPS, "hbm_bytes": BYTES, "collective_bytes": LINKS}
    names = ("sampler", "gradient", "update", "probe_fit")
    return {"programs": {**dict.fromkeys(names, costs), "scorer": {"error": "large"}}}


def test_kernels_flops_are_those_of_the_pairs_that_attend():
    """medium: 16 groups of 8 a micro-batch, 1,024 + 3,072 tokens, 28 layers of 1,536.

    A prompt's 512k pairs are computed once for its group. Of the four and a half times
    that the gradient has them one is `remat`'s.
    """
    found = kernel_flops(load_recipe("medium", {}))
    prompt, completion = 1024**2 / 2, 3072 * 1024 + 3072**2 / 2
    forward = 28 * 4 * 1536 * 16 * (prompt + 8 * completion)
    assert found["scorer"] == found["scorer_entropies"] == forward
    assert found["gradient"] == 4.5 * forward
    kept = kernel_flops(load_recipe("medium", {"model.remat": "none"}))
    assert kept["gradient"] == 3.5 * forward


def test_a_step_runs_each_program_as_often_as_its_recipe_says():
    """medium: 128 prompts in 8 minibatches."""
    config = load_recipe("medium", {})
    runs = runs_per_step(config)
    assert (runs["gradient"], runs["update"], runs["scorer"]) == (8, 8, 8)
    cut = load_recipe("medium", {"train.grad_accum_steps": 2, "train.num_epochs": 3})
    runs = runs_per_step(cut)
    assert (runs["gradient"], runs["update"], runs["scorer"]) == (48, 24, 16)
    found = predict_cell("medium@v5e:4x4", {}, compile_cell=fake_report)
    chip = parse_topology("v5e:4x4").chip
    memory, links = BYTES / chip.hbm_bytes_per_s, LINKS / chip.link_bytes_per_s
    once = FLOPS / chip.bfloat16_flops, memory, links
    assert found.at_best["sampler"] == pytest.approx(max(once))
    flops = FLOPS + kernel_flops(config)["gradient"] / 16
    learned = flops / chip.bfloat16_flops + memory + links
    assert found.in_turn["gradient"] == pytest.approx(8 * learned)
    assert set(found.in_turn) == {"sampler", "gradient", "update"}  # of a step
    assert found.tokens == 128 * 8 * 3072
    assert "| medium@v5e:4x4 |" in format_table([found])


def test_the_exponent_of_a_power_is_found():
    assert fit_exponent(3.0, 3.0 * 2**1.5, 2.0) == pytest.approx(1.5)
    assert fit_exponent(3.0, 3.0, 2.0) == 0.0


def test_what_was_compiled_is_kept(tmp_path):
    asked = []

    def compile_cell(cell, overrides):
        asked.append((cell, overrides))
        return fake_report(cell, overrides)

    kept = keep_reports(compile_cell, tmp_path / "reports")
    wider = {"train.batch_size": 64}
    for overrides in ({}, wider, {}, wider):
        assert kept("small@v5e:2x2", overrides) == fake_report("", {})
    assert asked == [("small@v5e:2x2", {}), ("small@v5e:2x2", wider)]


def test_a_decoded_token_moves_weights_once_and_a_stages_columns():
    """Medium on 16 chips: 8 prompts and 64 rows each, 768, 1,536 and 3,072 columns."""
    found = decode_bytes(load_recipe("medium", {}), parse_topology("v5e:4x4"))
    layer = 1536 * (12 * 128 + 2 * 2 * 128 + 12 * 128) + 3 * 1536 * 8960
    assert found["weights"] == 2 * (28 * layer + 151_936 * 1536)
    token = 28 * 2 * 2 * 128 * 2
    columns = (768 * 768 + 768 * 1536 + 1536 * 3072) / 3072
    assert found["cache"] == 64 * columns * token
    assert found["cache_filled"] == 64 * 1536 * token
    assert found["prompts"] == 8 * 1024 * token
    assert found["logits"] == 64 * 151_936 * 8


def test_four_chips_that_share_a_copy_share_weights_keys_and_rows():
    """`large` on 256 chips: of the four key heads each chip has one, of 16 rows."""
    config = load_recipe("large", {})
    found = decode_bytes(config, parse_topology("v5e:16x16"))
    whole = decode_bytes(
        dataclasses.replace(config, sampler=SamplerConfig(tensor_parallel=1)),
        parse_topology("v5e:8x8"),
    )
    for part in ("weights", "cache", "prompts", "logits"):
        assert found[part] == pytest.approx(whole[part] / 4)
