"""Stochastic rounding: right on average, a function of (seed, step, parameter)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from job_jax.mesh import AXES
from rlvr_jax.config import OptimizerConfig
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.optimizer import (
    cast_like,
    make_optimizer,
    random_bits,
    restart_schedule,
    stochastic_round,
)
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import param_shardings
from tests.support.policies import named

ALL_BITS = np.arange(2**16, dtype=np.uint16)
RATE = 1e-5


class Layer(nnx.Module):
    """All the parameters that an optimizer needs here: one matrix."""

    def __init__(self):
        value = np.random.RandomState(0).standard_normal((64, 96)) * 64**-0.5
        weight = jnp.asarray(value, jnp.bfloat16)
        self.weight = nnx.Param(weight, axes=("embed", "mlp"))


POLICY = Layer()


def _rounded(value: float) -> np.ndarray:
    """Returns the result of each of 2^16 possible draws for a float32, as float64."""
    x = jnp.full(2**16, value, jnp.float32)
    return np.asarray(stochastic_round(x, ALL_BITS).astype(jnp.float32), np.float64)


@pytest.mark.parametrize(
    "value", [0.02, -0.3, 3.14159, 1e-20, -65504.0, 255.99998, 2.0**-126, 1e38]
)
def test_the_mean_over_all_draws_is_the_value(value):
    """Each draw is one of the two neighbors in bfloat16."""
    rounded, exact = _rounded(value), np.float64(np.float32(value))
    assert rounded.mean() == exact
    below, above = np.unique(rounded)[[0, -1]]
    assert below <= exact <= above
    assert set(rounded) <= {below, above}
    assert above - below <= 2.0**-7 * abs(exact)


@pytest.mark.parametrize("value", [0.0, -1.5, 256.0, np.inf, -np.inf, np.nan])
def test_values_that_bfloat16_can_hold_are_unchanged(value):
    np.testing.assert_array_equal(_rounded(value), np.full(2**16, value))


def test_bits_are_even_and_differ_from_step_to_step():
    """Means of 2^16 draws, also along steps, are within 5 sigma of 1/2."""
    starts = jnp.arange(256, dtype=jnp.uint32)
    bits = jax.vmap(lambda start: random_bits(start, (16, 16)))(starts)
    share = np.asarray(bits, np.float64).reshape(256, 256) / 2**16
    sigma = 12**-0.5
    assert abs(share.mean() - 0.5) < 5 * sigma / 256
    for axis in (0, 1):
        assert np.abs(share.mean(axis=axis) - 0.5).max() < 5 * sigma / 16
        turned = np.roll(share, 1, axis=axis)
        correlation = np.corrcoef(share.ravel(), turned.ravel())[0, 1]
        assert abs(correlation) < 5 / 256


def test_a_leafs_bits_depend_on_neither_the_mesh_nor_the_other_leaves():
    chance = {"seed": 3, "step": jnp.int32(5)}
    tree = {name: jnp.linspace(0.1, 0.9, 4096).reshape(64, 64) for name in ("a", "b")}
    like = jax.tree.map(lambda x: x.astype(jnp.bfloat16), tree)
    alone = cast_like({"b": tree["b"]}, {"b": like["b"]}, **chance)
    devices = np.array(jax.devices()).reshape(4, 2)
    mesh = Mesh(devices, ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    layout = NamedSharding(mesh, Spec("x", "y"))
    for other in ({"seed": 4}, {"step": jnp.int32(6)}):
        changed = cast_like(tree, like, **(chance | other))
        assert (np.asarray(changed["b"]) != np.asarray(alone["b"])).any()
    program = jax.jit(functools.partial(cast_like, **chance), out_shardings=layout)
    split = program(jax.device_put(tree, layout), like)
    np.testing.assert_array_equal(split["b"], alone["b"])
    assert (np.asarray(split["a"]) != np.asarray(split["b"])).any()
    compiled = program.lower(jax.device_put(tree, layout), like).compile()
    assert "all-" not in compiled.as_text()


@functools.cache
def _updater(seed: int = 7) -> Updater:
    return Updater(
        nnx.graphdef(POLICY),
        supervised_objective,
        optimizer=OptimizerConfig(
            learning_rate=RATE, warmup_steps=0, clip_norm=1e9, moments_dtype="bfloat16"
        ),
        total_steps=10,
        logits_chunk_size=0,
        seed=seed,
    )


def _stepped(*, steps: int = 2, shape=(1, 1, 1), through_host=False, seed=7):
    """Returns parameters, by name, and state after steps with a gradient of ones."""
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    mesh = Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))
    updater = _updater(seed)
    layout = param_shardings(POLICY, mesh)
    with jax.set_mesh(mesh):
        params = jax.device_put(nnx.state(POLICY), layout)
        ones = jax.tree.map(lambda p: jnp.ones(p.shape, jnp.float32), params)
        ones = jax.device_put(ones, layout)
        state = updater.init(jax.tree.map(jnp.copy, params))
        for _ in range(steps):
            if through_host:  # as a checkpoint does
                layouts = jax.tree.map(lambda x: x.sharding, state)
                state = jax.device_put(jax.device_get(state), layouts)
            state, _ = updater._apply(state, ones)
    return named(state.params), jax.device_get(state)


def test_steps_far_below_the_spacing_arrive_on_average():
    """A gradient of ones moves weights by -RATE; round-to-nearest would move none.

    The spacing of weights near 0.1 is 5e-4: one in fifty moves, by fifty times RATE.
    """
    before, (after, state) = named(nnx.state(POLICY)), _stepped(steps=1)
    moves = np.concatenate(
        [
            (after[name].astype(np.float64) - before[name].astype(np.float64)).ravel()
            for name in before
        ]
    )
    error = np.sqrt((moves**2).sum()) / moves.size
    assert (moves == 0).mean() > 0.9
    assert abs(moves.mean() + RATE) < 5 * error < RATE
    for moment in ("mu", "nu"):
        found = jax.tree.leaves(optax.tree.get(state.opt_state, moment))
        assert {leaf.dtype for leaf in found} == {jnp.bfloat16.dtype}


@pytest.mark.parametrize(
    "way", [{"through_host": True}, {"shape": (1, 4, 2)}], ids=["resumed", "sharded"]
)
def test_the_same_seed_and_step_round_alike_bit_for_bit(way):
    expected, found = _stepped()[0], _stepped(**way)[0]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_another_seed_rounds_other_weights_up():
    """One in fifty moves; of these, few move with another seed."""
    before = named(nnx.state(POLICY))
    moved = [
        np.concatenate([(after[name] != before[name]).ravel() for name in before])
        for after in (_stepped(steps=1, seed=seed)[0] for seed in (7, 8))
    ]
    both = (moved[0] & moved[1]).sum()
    assert min(each.sum() for each in moved) > 20
    assert both < 0.5 * min(each.sum() for each in moved)


def test_a_schedule_restarts_and_the_moments_stay():
    """Adam's count stays too, because it scales the moments."""
    params = {"w": jnp.ones((2, 2), jnp.float32)}
    optimizer = make_optimizer(OptimizerConfig(warmup_steps=4), 100)
    state = fresh = optimizer.init(params)
    with jax.numpy_dtype_promotion("standard"):  # as Updater calls optax
        for _ in range(3):
            _, state = optimizer.update(params, state, params)
    restarted = restart_schedule(state)

    def nodes(of, kind):
        leaves = jax.tree.leaves(of, is_leaf=lambda node: isinstance(node, kind))
        return [node for node in leaves if isinstance(node, kind)]

    [kept], [was], [first] = (
        nodes(each, optax.ScaleByAdamState) for each in (restarted, state, fresh)
    )
    assert int(kept.count) == 3
    for name in ("mu", "nu"):
        moment = getattr(kept, name)["w"]
        np.testing.assert_array_equal(moment, getattr(was, name)["w"])
        assert (moment != getattr(first, name)["w"]).all()
    [counts], [before] = (
        nodes(each, optax.ScaleByScheduleState) for each in (restarted, state)
    )
    assert (int(counts.count), int(before.count)) == (0, 3)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optimizer.update(params, restarted, params)
        later, _ = optimizer.update(params, state, params)
    np.testing.assert_allclose(updates["w"] * 4, later["w"], rtol=1e-5)
