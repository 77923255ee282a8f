"""Costs of a compiled program: loop bodies count once per trip, collectives once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rlvr_jax.plan.program_costs import ProgramCosts, program_costs
from rlvr_jax.plan.topology import Chip, parse_topology

# A product as TPU programs write it: two heads become a spatial axis, with padding that
# pairs each output position with one input position.
CONVOLUTION = """
ENTRY %main (p0: bf16[512,1,896], p1: bf16[896,2,64]) -> bf16[512,2,64] {
  %p0 = bf16[512,1,896]{2,0,1} parameter(0)
  %p1 = bf16[896,2,64]{2,0,1} parameter(1)
  ROOT %c = bf16[512,2,64]{2,0,1:T(8,128)S(1)} convolution(%p0, %p1), \
window={size=2 pad=1_1 rhs_reversal=1}, dim_labels=b0f_i0o->b0f
}
"""
# A gather that starts in one fusion and ends in another, within a loop of four trips.
STEPPED_GATHER = """
%begin (p: bf16[4,8]) -> bf16[16,8] {
  %p = bf16[4,8]{1,0} parameter(0)
  ROOT %g = bf16[16,8]{1,0} all-gather(%p), channel_id=7, dimensions={0}
}

%end (p: bf16[4,8]) -> bf16[16,8] {
  %p = bf16[4,8]{1,0} parameter(0)
  ROOT %g = bf16[16,8]{1,0} all-gather(%p), channel_id=7, dimensions={0}
}

%body (t: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %t = (s32[], bf16[4,8]{1,0}) parameter(0)
  %x = bf16[4,8]{1,0} get-tuple-element(%t), index=1
  %a = bf16[16,8]{1,0} fusion(%x), kind=kCustom, calls=%begin
  %b = bf16[16,8]{1,0} fusion(%x), kind=kCustom, calls=%end
  %i = s32[] get-tuple-element(%t), index=0
  ROOT %r = (s32[], bf16[4,8]{1,0}) tuple(%i, %x)
}

%condition (t: (s32[], bf16[4,8])) -> pred[] {
  %t = (s32[], bf16[4,8]{1,0}) parameter(0)
  %n = s32[] constant(4)
  %i = s32[] get-tuple-element(%t), index=0
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (t: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %t = (s32[], bf16[4,8]{1,0}) parameter(0)
  ROOT %w = (s32[], bf16[4,8]{1,0}) while(%t), condition=%condition, body=%body
}
"""

# Two sums combined in one operation, and two gathers that start together.
JOINED = """
ENTRY %main (a: f32[64], b: f32[8,8], c: bf16[4,8], d: bf16[2,8]) -> f32[64] {
  %a = f32[64]{0} parameter(0)
  %b = f32[8,8]{1,0} parameter(1)
  %c = bf16[4,8]{1,0} parameter(2)
  %d = bf16[2,8]{1,0} parameter(3)
  %s = (f32[64]{0}, f32[8,8]{1,0}) all-reduce(%a, %b), channel_id=1, to_apply=%add
  %g = ((bf16[4,8]{1,0}, bf16[2,8]{1,0}), (bf16[16,8]{1,0}, bf16[8,8]{1,0})) \
all-gather-start(%c, %d), channel_id=2, dimensions={0}
  %e = (bf16[16,8]{1,0}, bf16[8,8]{1,0}) all-gather-done(%g)
  %p = (bf16[4,8]{1,0}, bf16[4,8]{1,0}, u32[], u32[]) \
collective-permute-start(%c), channel_id=3, source_target_pairs={{0,1},{1,0}}
  %r = (f32[64]{0}, f32[8,8]{1,0}) all-reduce-start(%a, %b), channel_id=4, to_apply=%add
  ROOT %x = f32[64]{0} get-tuple-element(%s), index=0
}
"""

# A loop of eight rounds, unrolled into trips of two rounds each.
UNROLLED = """
%body (t: (f32[8,8], u32[])) -> (f32[8,8], u32[]) {
  %t = (f32[8,8]{1,0}, u32[]) parameter(0)
  %x = f32[8,8]{1,0} get-tuple-element(%t), index=0
  %n = u32[] get-tuple-element(%t), index=1
  %one = u32[] constant(1)
  %y = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %m = u32[] add(%n, %one)
  %z = f32[8,8]{1,0} dot(%y, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %k = u32[] add(%one, %m)
  ROOT %r = (f32[8,8]{1,0}, u32[]) tuple(%z, %k)
}

%condition (t: (f32[8,8], u32[])) -> pred[] {
  %t = (f32[8,8]{1,0}, u32[]) parameter(0)
  %bound = u32[] constant(8)
  %n = u32[] get-tuple-element(%t), index=1
  ROOT %lt = pred[] compare(%n, %bound), direction=LT
}

ENTRY %main (t: (f32[8,8], u32[])) -> (f32[8,8], u32[]) {
  %t = (f32[8,8]{1,0}, u32[]) parameter(0)
  ROOT %w = (f32[8,8]{1,0}, u32[]) while(%t), condition=%condition, body=%body
}
"""
# A layer of 24 stacked matrices, sliced in a fusion within the fusion that multiplies.
# The other operand is read whole, because it is read through a bitcast.
NESTED_SLICE = """
%inner (w: bf16[24,128,64], i: s32[]) -> bf16[128,64] {
  %w = bf16[24,128,64]{2,1,0} parameter(0)
  %i = s32[]{:S(6)} parameter(1)
  %z = s32[]{:S(6)} constant(0)
  %s = bf16[1,128,64]{2,1,0} dynamic-slice(%w, %i, %z, %z), \
dynamic_slice_sizes={1,128,64}
  ROOT %b = bf16[128,64]{1,0} bitcast(%s)
}

%whole (x: bf16[16,128]) -> bf16[16,128] {
  %x = bf16[16,128]{1,0} parameter(0)
  ROOT %b = bf16[16,128]{1,0} bitcast(%x)
}

%outer (x: bf16[16,128], w: bf16[24,128,64], i: s32[]) -> bf16[16,64] {
  %x = bf16[16,128]{1,0} parameter(0)
  %y = bf16[16,128]{1,0} fusion(%x), kind=kLoop, calls=%whole
  %w = bf16[24,128,64]{2,1,0} parameter(1)
  %i = s32[]{:S(6)} parameter(2)
  %v = bf16[24,128,64]{2,1,0} bitcast(%w)
  %f = bf16[128,64]{1,0} fusion(%v, %i), kind=kLoop, calls=%inner
  ROOT %c = bf16[16,64]{1,0:S(1)} convolution(%y, %f), dim_labels=bf_io->bf
}

ENTRY %main (x: bf16[16,128], w: bf16[24,128,64], i: s32[]) -> bf16[16,64] {
  %x = bf16[16,128]{1,0} parameter(0)
  %w = bf16[24,128,64]{2,1,0} parameter(1)
  %i = s32[]{:S(6)} parameter(2)
  ROOT %r = bf16[16,64]{1,0:S(1)} fusion(%x, %w, %i), kind=kOutput, calls=%outer
}
"""
# An array and a part of another are copied into the core; the results name both.
STARTED = """
ENTRY %main (a: bf16[64,8], b: bf16[64,8]) -> bf16[16,8] {
  %a = bf16[64,8]{1,0} parameter(0)
  %b = bf16[64,8]{1,0} parameter(1)
  %c = (bf16[64,8]{1,0:S(1)}, bf16[64,8]{1,0}, u32[]{:S(2)}) copy-start(%a)
  %d = bf16[64,8]{1,0:S(1)} copy-done(%c)
  %s = ((bf16[64,8]{1,0}), bf16[16,8]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%b), \
slice={[0:16], [0:8]}
  ROOT %e = bf16[16,8]{1,0:S(1)} slice-done(%s)
}
"""


def compiled_text(function, *shapes):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(function).lower(*arguments).compile().as_text()


def test_products_in_nested_loops_count_as_often_as_they_run():
    def nested(x, weights):
        def outer(y, w):
            return jax.lax.fori_loop(0, 3, lambda _, z: jnp.tanh(z @ w), y), None

        return jax.lax.scan(outer, x, weights)[0]

    hlo = compiled_text(nested, (16, 32), (5, 32, 32))
    assert program_costs(hlo).flops == 5 * 3 * 2 * 16 * 32 * 32


def test_an_unrolled_loop_runs_less_often():
    assert program_costs(UNROLLED).flops == 8 * 2 * 8**3


def test_a_loop_without_a_bound_runs_as_often_as_given():
    def until_small(x, w):
        return jax.lax.while_loop(
            lambda y: jnp.abs(y).max() > x.sum(), lambda y: y @ w, x
        )

    hlo = compiled_text(until_small, (16, 32), (32, 32))
    per_trip = 2 * 16 * 32 * 32
    assert program_costs(hlo).flops == per_trip
    assert program_costs(hlo, unbounded_trips=9).flops == 9 * per_trip


def test_a_scope_gives_the_trips_of_only_its_own_loop():
    def named(x, w):
        def until_small(y):
            return jax.lax.while_loop(
                lambda y: jnp.abs(y).max() > x.sum(), lambda y: y @ w, y
            )

        with jax.named_scope("trips_4"):
            return jax.lax.while_loop(lambda y: y.max() > x.sum(), until_small, x)

    hlo = compiled_text(named, (16, 32), (32, 32))
    assert program_costs(hlo, unbounded_trips=9).flops == 4 * 9 * 2 * 16 * 32 * 32


def test_the_most_expensive_branch_counts():
    def either(x, w):
        return jax.lax.cond(x.sum() > 0, lambda: x @ w @ w, lambda: x @ w)

    hlo = compiled_text(either, (16, 32), (32, 32))
    assert program_costs(hlo).flops == 2 * 2 * 16 * 32 * 32


def test_a_branch_of_a_scope_that_never_runs_costs_nothing():
    def either(x, w):
        def seldom():
            with jax.named_scope("seldom"):
                return x @ w @ w

        return jax.lax.cond(x.sum() > 0, seldom, lambda: x @ w)

    # A unique shape: a program cached by another test would have that test's scopes.
    hlo = compiled_text(either, (8, 24), (24, 24))
    costs = program_costs(hlo, skipped_scopes=("seldom",))
    assert costs.flops == 2 * 8 * 24 * 24
    assert program_costs(hlo, skipped_scopes=("seldo",)).flops == 2 * costs.flops


def test_a_slice_reads_what_it_takes_and_an_update_writes_what_it_puts():
    """Each of 4 passes reads one of 64 rows and writes one; neither costs all 64."""

    def walk(rows):
        def one(i, rows):
            row = jax.lax.dynamic_index_in_dim(rows, i, keepdims=False)
            return jax.lax.dynamic_update_index_in_dim(rows, row + 1, i + 1, axis=0)

        return jax.lax.fori_loop(0, 4, one, rows)

    costs = program_costs(compiled_text(walk, (64, 1024)))
    whole, row = 64 * 1024 * 4, 1024 * 4
    copies = 2 * whole  # of the argument, because the loop must not overwrite it
    assert copies + 4 * 2 * row <= costs.hbm_bytes < copies + 4 * 5 * row


def test_a_slice_within_a_nested_fusion_reads_what_it_takes():
    layer, x = 128 * 64 * 2, 16 * 128 * 2
    assert program_costs(NESTED_SLICE).hbm_bytes == layer + x
    assert program_costs(NESTED_SLICE).flops == 2 * 16 * 128 * 64


def test_started_transfers_count_once():
    assert program_costs(STARTED).hbm_bytes == (64 + 16) * 8 * 2


def test_padding_of_a_convolution_is_not_multiplied():
    assert program_costs(CONVOLUTION).flops == 2 * 512 * 896 * 2 * 64
    read = 2 * (512 * 896 + 896 * 2 * 64)
    assert program_costs(CONVOLUTION).hbm_bytes == read  # the result stays in the core


def test_a_collective_in_steps_counts_once_a_pass():
    assert program_costs(STEPPED_GATHER).collective_bytes == 4 * 16 * 8 * 2


def test_all_arrays_of_a_joined_collective_count():
    sums, gathers, passed = 2 * (64 + 64) * 4, (16 + 8) * 8 * 2, 4 * 8 * 2
    assert program_costs(JOINED).collective_bytes == 2 * sums + gathers + passed


@pytest.mark.parametrize(("spec", "times"), [(("data", None), 0), ((None, "data"), 2)])
def test_a_sum_over_devices_goes_around_twice(spec, times):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec(*spec))
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=split)
    whole = functools.partial(jnp.sum, axis=1)
    out = NamedSharding(mesh, PartitionSpec(spec[0]))
    hlo = jax.jit(whole, out_shardings=out).lower(shape).compile().as_text()
    assert program_costs(hlo).collective_bytes == times * 64 * 4


def test_seconds_are_costs_over_peaks():
    chip = Chip(16, bfloat16_flops=10.0, hbm_bytes_per_s=4.0, link_bytes_per_s=2.0)
    costs = ProgramCosts(flops=30.0, hbm_bytes=20.0, collective_bytes=1.0)
    seconds = chip.predict_seconds(costs)
    assert (seconds["compute"], seconds["memory"], seconds["links"]) == (3.0, 5.0, 0.5)
    assert (seconds["overlapped"], seconds["in_turn"]) == (5.0, 8.5)


def test_the_whole_of_a_program_agrees_with_xlas_own_count():
    """Without loops, its FLOPs equal ours except for elementwise operations."""

    def layer(x, w):
        return jnp.tanh(x @ w) @ w.T

    program = jax.jit(layer).lower(np.ones((64, 128)), np.ones((128, 256))).compile()
    ours = program_costs(program.as_text()).flops
    assert ours == pytest.approx(program.cost_analysis()["flops"], rel=0.01)
    assert ours == 2 * 2 * 64 * 128 * 256


def test_peaks_belong_to_chips():
    assert parse_topology("v5e:4x4").chip.bfloat16_flops == 197e12
    chip = parse_topology("v6e:4x4").chip
    assert (chip.bfloat16_flops, chip.hbm_bytes_per_s) == (918e12, 1638e9)
    assert (chip.hbm_gib, chip.link_bytes_per_s) == (31.24, 400e9)
