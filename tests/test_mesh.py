"""One program on every mesh: the same numbers, laid out as the logical axes say."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from policies import named, random_tokens, tiny_policy

from job_jax.compiles import CompileCounter
from job_jax.config import MeshConfig
from job_jax.mesh import (
    AXES,
    batch_sharding,
    check_batch,
    make_mesh,
    partition,
    replicated,
)
from job_jax.schema import ConfigError
from rlvr_jax.config import LossConfig, OptimizerConfig, SamplingConfig
from rlvr_jax.learn.batches import rollout_batch, weighted
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.update import TrainState, Updater
from rlvr_jax.models import Transformer, shardings
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.sampler import pad_prompts, sample
from rlvr_jax.types import LossParts, Rollouts

P, G, T = 8, 2, 6
ONE = (1, 1, 1)  # data, fsdp, tensor
SHAPES = [(2, 1, 1), (8, 1, 1), (2, 2, 2), (1, 4, 2)]
COMPILES = CompileCounter()
OPTIMIZER = OptimizerConfig(clip_norm=1e9, warmup_steps=0)
SAMPLING = SamplingConfig(max_new_tokens=T, temperature=0.9, top_p=0.95)


def _policy() -> Transformer:
    return tiny_policy(layers=1, vocab_size=24)  # 24 divides over the tensor axis


def _mesh(shape: tuple[int, int, int]) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _laid_out(mesh: Mesh):
    """Returns (graphdef, params) of the tiny policy on the mesh."""
    policy = _policy()
    graphdef, params = nnx.split(policy)
    return graphdef, jax.device_put(params, shardings(policy, mesh))


@functools.cache
def _sampled(shape: tuple[int, int, int]) -> Rollouts:
    """Returns the rollouts that the mesh draws."""
    mesh = _mesh(shape)
    prompts = pad_prompts(
        [random_tokens(1, 1 + p % 4, seed=p)[0] for p in range(P)],
        uids=range(P),
        bucket=4,
    )
    with jax.set_mesh(mesh):
        graphdef, params = _laid_out(mesh)
        rollouts = sample(
            graphdef,
            params,
            jax.device_put(prompts, batch_sharding(mesh)),
            jax.device_put(Sampling.of(SAMPLING), replicated(mesh)),
            key=jax.random.key(0),
            weight_version=np.int32(0),
            samples_per_prompt=G,
            max_new_tokens=T,
        )
    return jax.device_get(rollouts)


@dataclasses.dataclass(frozen=True)
class Updated:
    """One optimizer step on a mesh, and what a second one compiled."""

    losses: LossParts
    gradient: dict[str, np.ndarray]
    params: dict[str, np.ndarray]
    layouts: list[TrainState]
    compiled_again: int


@functools.cache
def _updated(shape: tuple[int, int, int]) -> Updated:
    """Returns what a step on one device's rollouts does on the mesh."""
    mesh = _mesh(shape)
    advantages = np.random.RandomState(0).standard_normal(P * G).astype(np.float32)
    batch = weighted(
        rollout_batch(_sampled(ONE), advantages), aggregation="token_mean", max_length=T
    )
    with jax.set_mesh(mesh):
        graphdef, params = _laid_out(mesh)
        updater = Updater(
            graphdef,
            policy_objective(LossConfig()),
            optimizer=OPTIMIZER,
            total_steps=10,
            logit_chunk=0,
        )
        sampling = jax.device_put(Sampling.of(SAMPLING), replicated(mesh))
        part = jax.device_put(batch, batch_sharding(mesh))
        opening = updater.init(params)
        layouts = [jax.tree.map(lambda x: x.sharding, opening)]
        state, losses, _ = updater.step(opening, [part], sampling)
        layouts.append(jax.tree.map(lambda x: x.sharding, state))
        first = jax.device_get(state)
        count = COMPILES.count
        updater.step(state, [part], sampling)
    moments = named(optax.tree.get(first.opt_state, "mu"))
    return Updated(
        losses=jax.device_get(losses),
        gradient={k: m / (1 - OPTIMIZER.b1) for k, m in moments.items()},
        params=named(first.params),
        layouts=layouts,
        compiled_again=COMPILES.count - count,
    )


each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.mark.parametrize("shape", [*SHAPES, (1, 2, 4)], ids=str)
def test_rollouts_are_the_same_token_for_token(shape):
    one, many = _sampled(ONE), _sampled(shape)
    np.testing.assert_array_equal(many.tokens, one.tokens)
    np.testing.assert_array_equal(many.lengths, one.lengths)
    np.testing.assert_array_equal(many.finished, one.finished)
    np.testing.assert_allclose(many.logprobs, one.logprobs, rtol=0, atol=1e-5)


@each_shape
def test_losses_gradients_and_parameters_are_the_same(shape):
    one, many = _updated(ONE), _updated(shape)
    for name, value in vars(one.losses).items():
        if value is None:  # what only a probe sees
            continue
        assert vars(many.losses)[name] == pytest.approx(value, rel=1e-5, abs=1e-5)
    for name, gradient in one.gradient.items():
        scale = np.abs(gradient).max()
        assert scale > 0, name
        np.testing.assert_allclose(
            many.gradient[name], gradient, rtol=0, atol=1e-5 * scale, err_msg=name
        )
        # Adam's first step has the gradient's sign, which rounding decides near 0.
        clear = np.abs(gradient) > 1e-3 * scale
        np.testing.assert_allclose(
            many.params[name][clear], one.params[name][clear], rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("shape", [ONE, *SHAPES], ids=str)
def test_a_step_keeps_every_layout_so_that_the_next_compiles_nothing(shape):
    """Parameters and moments alike lie as the logical axes say, before and after."""
    updated = _updated(shape)
    expected = jax.tree.leaves(shardings(_policy(), _mesh(shape)))
    ranks = [param.ndim for param in jax.tree.leaves(nnx.state(_policy()))]
    for layout in updated.layouts:
        moments = (optax.tree.get(layout.opt_state, name) for name in ("mu", "nu"))
        for tree in (layout.params, *moments):
            for found, wanted, rank in zip(
                jax.tree.leaves(tree), expected, ranks, strict=True
            ):
                assert found.is_equivalent_to(wanted, rank)
    assert updated.compiled_again == 0


# L 1, D 32, F 48, N 4, K 2, H 8, V 24 on fsdp 4 and tensor 2.
SHARDS = {
    "embedding": (12, 8),
    "blocks.attention_norm.scale": (1, 8),
    "blocks.query": (1, 8, 2, 8),
    "blocks.key": (1, 8, 1, 8),
    "blocks.value": (1, 8, 1, 8),
    "blocks.out": (1, 2, 8, 8),
    "blocks.mlp_norm.scale": (1, 8),
    "blocks.gate": (1, 8, 24),
    "blocks.up": (1, 8, 24),
    "blocks.down": (1, 24, 8),
    "final_norm.scale": (8,),
}


def test_each_device_holds_the_share_that_the_logical_axes_say():
    mesh = _mesh((1, 4, 2))
    _, params = _laid_out(mesh)
    found = {
        ".".join(path): {shard.data.shape for shard in param[...].addressable_shards}
        for path, param in nnx.to_flat_state(params)
    }
    assert found == {name: {shape} for name, shape in SHARDS.items()}


def test_an_axis_that_does_not_divide_is_whole_on_every_device():
    """Two key/value heads and 23 tokens on four devices; four query heads divide."""
    mesh = _mesh((1, 2, 4))
    layout = shardings(tiny_policy(layers=1, vocab_size=23), mesh)
    blocks = layout["blocks"]
    assert layout["embedding"].spec == Spec(None, ("fsdp",))
    assert blocks["key"].spec == Spec(None, ("fsdp",), None, None)
    assert blocks["query"].spec == Spec(None, ("fsdp",), ("tensor",), None)


def test_logical_axes_lie_where_the_table_says():
    mesh = _mesh((2, 2, 2))
    assert partition((8, 3), ("batch", None), mesh) == Spec(("data", "fsdp"), None)
    assert partition((6, 3), ("batch", None), mesh) == Spec(None, None)
    assert partition((), (), mesh) == Spec()


@pytest.mark.parametrize(
    "axes", [("batch", "embed"), ("heads", "mlp"), ("vocab", "vocab")]
)
def test_two_axes_of_an_array_cannot_lie_on_one_mesh_axis(axes):
    with pytest.raises(ValueError, match="share a mesh axis"):
        partition((8, 8), axes, _mesh((2, 2, 2)))


def test_the_mesh_takes_what_the_other_axes_leave():
    assert make_mesh(MeshConfig()).shape == {"data": 8, "fsdp": 1, "tensor": 1}
    mesh = make_mesh(MeshConfig(fsdp=2, tensor=2))
    assert mesh.shape == {"data": 2, "fsdp": 2, "tensor": 2}
    assert replicated(mesh) == NamedSharding(mesh, Spec())


@pytest.mark.parametrize(
    "axes", [{"data": 3}, {"fsdp": 3}, {"data": 4}, {"tensor": 16}]
)
def test_a_mesh_that_does_not_use_the_devices_exactly_is_refused(axes):
    with pytest.raises(ConfigError, match="does not use the 8 devices"):
        make_mesh(MeshConfig(**axes))


def test_a_batch_must_divide_over_data_and_fsdp():
    mesh = _mesh((2, 2, 2))
    check_batch(8, mesh, "train.prompts_per_step")
    with pytest.raises(ConfigError, match=r"train.prompts_per_step=6 .* 4 data x fsdp"):
        check_batch(6, mesh, "train.prompts_per_step")
