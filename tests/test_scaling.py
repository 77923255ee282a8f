"""Predicted seconds for slices that we do not have: lines, counts, exponents."""

import dataclasses

import jax
import pytest

from benchmarks.exponents import (
    AXES,
    SMALL_SHAPES,
    axis_points,
    fit_axis,
    fit_exponent,
    format_fits,
    vary_axis,
)
from benchmarks.scaling import format_table, predict_cell
from benchmarks.step_costs import (
    decode_bytes,
    keep_reports,
    kernel_flops,
    load_cell,
    load_recipe,
    runs_per_step,
)
from rlvr_jax.config import SamplerConfig
from rlvr_jax.plan import compile_only
from rlvr_jax.plan.compile_only import compile_report
from rlvr_jax.plan.topology import parse_topology

FLOPS, BYTES, LINKS = 1e15, 1e12, 1e11


COSTS = {"flops": FLOPS, "hbm_bytes": BYTES, "collective_bytes": LINKS}


def fake_report(cell, overrides, programs):
    """Every program costs the same; one did not fit."""
    names = ("sampler", "gradient", "update", "probe_fit")
    return {"programs": {**dict.fromkeys(names, COSTS), "scorer": {"error": "large"}}}


def test_kernels_flops_are_those_of_the_pairs_that_attend():
    """medium: 16 groups of 8 a micro-batch, 1,024 + 3,072 tokens, 28 layers of 1,536.

    A prompt's 512k pairs are computed once for its group. The gradient computes them
    four and a half times; `remat` causes one of these.
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
    assert set(found.in_turn) == {"sampler", "gradient", "update"}  # run by a step
    assert found.tokens == 128 * 8 * 3072
    assert found.missing == ["scorer"]
    assert format_table([found]).endswith("| - | - |")  # the scorer is missing


def test_a_step_is_predicted_where_all_that_it_runs_was_compiled():
    """A logged step's gradient does not count as missing; the update does."""

    def report(*missing):
        programs = {"sampler": COSTS, "gradient": COSTS}
        return {"programs": programs, "not_compiled": [*missing, "gradient_logged"]}

    for missing in ([], ["update"]):
        found = predict_cell(
            "medium@v5e:4x4", {}, compile_cell=lambda *_, m=missing: report(*m)
        )
        assert found.missing == missing
        rates = found.tokens_per_s()
        assert (rates is None) == bool(missing)
        row = format_table([found]).splitlines()[-1]
        assert row.startswith("| medium@v5e:4x4 |")
        assert row.endswith("| - | - |") == bool(missing)
    whole = predict_cell("medium@v5e:4x4", {}, compile_cell=lambda *_: report())
    slow, fast = whole.tokens_per_s()
    assert slow == whole.tokens / sum(whole.in_turn.values()) < fast


def test_compiled_programs_are_kept_one_by_one(tmp_path):
    """A program that the recipe does not run is not requested again."""
    asked = []
    run = ("sampler", "gradient", "gradient_logged")

    def compile_cell(cell, overrides, programs):
        asked.append((dict(overrides), *programs))
        (program,) = programs
        compiled = {program: {"flops": len(asked)}} if program in run else {}
        rest = [name for name in run if name != program]
        return {"programs": compiled, "not_compiled": rest, "fits": None}

    kept = keep_reports(compile_cell, tmp_path / "reports")
    wider = {"train.batch_size": 64}
    first = kept("small@v5e:2x2", {}, ("gradient",))
    assert first["programs"] == {"gradient": {"flops": 1}}
    for _ in range(2):
        found = kept("small@v5e:2x2", {}, ("scorer", "sampler", "gradient"))
        assert found["programs"] == {
            "gradient": {"flops": 1},
            "sampler": {"flops": 2},
        }
        assert found["not_compiled"] == ["gradient_logged"]
        kept("small@v5e:2x2", wider, ("sampler",))
    assert asked == [({}, "gradient"), ({}, "sampler"), (wider, "sampler")]


def test_the_exponent_of_a_power_is_found():
    assert fit_exponent((1, 2, 4), (3.0, 3.0 * 2**1.5, 3.0 * 4**1.5)) == 1.5
    assert fit_exponent((2, 4), (3.0, 3.0)) == 0.0
    assert fit_exponent((1, 2, 4), (2.0, 0.0, 0.0)) is None
    # Least squares: a middle point off the line does not change the slope.
    assert fit_exponent((1, 2, 4), (1.0, 9.0, 16.0)) == 2.0


def test_one_setting_of_the_base_is_doubled_at_a_time():
    base = load_cell("small@v5e:2x2", SMALL_SHAPES)
    train, model = base.train, base.model
    for axis in AXES:
        (cell, same), _, (large, most) = axis_points(axis, SMALL_SHAPES)
        assert (cell, same) == ("small@v5e:2x2", SMALL_SHAPES)
        chips = 16 if axis in ("devices", "slice") else 4
        assert large == ("small@v5e:4x4" if chips == 16 else cell)
        assert most == SMALL_SHAPES | vary_axis(axis, base, 4)
        found = load_cell(large, most)
        prompts = 4 if axis in ("batch", "slice") else 1
        assert found.train.batch_size == train.batch_size * prompts
        length = 4 if axis == "length" else 1
        assert found.train.sampling.max_new_tokens == 256 * length
        assert found.model.max_seq_len == 128 + 256 * length
        wide = 4 if axis == "width" else 1
        assert found.model.hidden_size == model.hidden_size * wide
        assert found.model.num_heads == model.num_heads * wide
        # A device's micro-batch keeps its size on more devices.
        groups = 8 if axis == "batch" else 2
        assert found.train.groups_per_micro_batch / chips == groups


def test_powers_of_a_steps_costs_are_those_of_its_runs():
    """A micro-batch costs its groups squared; on 4x devices each runs a fourth."""

    def compile_cell(cell, overrides, programs):
        config = load_cell(cell, overrides)
        chips = parse_topology(cell.partition("@")[2]).num_chips
        groups = config.train.groups_per_micro_batch / chips
        costs = {"flops": 0.0, "hbm_bytes": 3e9 * groups**2, "collective_bytes": 0.0}
        return {"programs": dict.fromkeys(programs, costs)}

    fits = [fit_axis("gradient", axis, compile_cell=compile_cell) for axis in AXES]
    assert [fit.exponents["hbm_bytes"] for fit in fits] == [2.0, 0.0, 0.0, -1.0, 0.0]
    assert [fit.values for fit in fits[2:4]] == [(512, 1024, 2048), (4, 8, 16)]
    assert fits[0].exponents["flops"] == 1.0  # kernels, by hand
    assert fits[0].exponents["collective_bytes"] is None
    assert fits[0].costs[0].hbm_bytes == 4 * 3e9 * 2**2  # four micro-batches
    lines = format_fits(fits).splitlines()
    assert "| batch | 32 64 128 |" in lines[2]
    assert "| 48 192 768 | 0 0 0 | 1.00, 2.00, - |" in lines[2]
    with pytest.raises(ValueError, match=r"sampler of small@v5e:2x2 .* has no costs"):
        fit_axis("sampler", "batch", compile_cell=lambda *_: {"programs": {}})


TINY = SMALL_SHAPES | {
    "model.num_layers": 2,
    "model.hidden_size": 32,
    "model.intermediate_size": 64,
    "model.num_heads": 2,
    "model.head_dim": 16,
    "model.max_seq_len": 16 + 16,
    "pretrained.vocab_size": 64,
    "probe.layer": 0,
    "train.batch_size": 8,
    "train.grad_accum_steps": 1,
    "train.sampling.max_new_tokens": 16,
    "eval.sampling.max_new_tokens": 16,
    "prompt_pad_multiple": 16,
    "completion_pad_multiple": 16,
}


def test_compiled_products_are_proportional_to_the_batch(monkeypatch):
    """The sampler's chips send each other as little for any batch."""

    def compile_cell(cell, overrides, programs):
        config = load_cell(cell, overrides)
        devices = jax.devices()[: config.mesh.fsdp]
        monkeypatch.setattr(compile_only, "_topology_devices", lambda _: devices)
        return compile_report(config, cell.partition("@")[2], programs=programs)

    fit = fit_axis(
        "sampler", "batch", compile_cell=compile_cell, shapes=TINY, factors=(1, 2)
    )
    assert fit.exponents["flops"] == 1.0
    assert fit.costs[0].collective_bytes == fit.costs[1].collective_bytes
    # Weights are read once for all rows.
    assert 0 < fit.exponents["hbm_bytes"] < 1


def test_a_decoded_token_moves_weights_once_and_a_stages_columns():
    """Medium on 16 chips, each 8 prompts and 64 rows: 768, 1,536, 3,072 columns."""
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
    """`large` on 256 chips: each chip has one of four key heads, for 16 rows."""
    config = load_recipe("large", {})
    found = decode_bytes(config, parse_topology("v5e:16x16"))
    whole = decode_bytes(
        dataclasses.replace(config, sampler=SamplerConfig(tensor_parallel=1)),
        parse_topology("v5e:8x8"),
    )
    for part in ("weights", "cache", "prompts", "logits"):
        assert found[part] == pytest.approx(whole[part] / 4)
