"""One program on every mesh: the same numbers, laid out as the logical axes say.

To test all policy variants (scanned, rematerialized) on every mesh, run `pytest -m
exhaustive` on this file.
"""

import dataclasses
import functools
import itertools
import math
import types
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from jaxtyping import PyTree

from job_jax.config import MeshConfig
from job_jax.mesh import (
    AXES,
    batch_sharding,
    check_batch,
    make_mesh,
    partition_spec,
    replicated_sharding,
)
from job_jax.metrics import CompileCounter
from job_jax.schema import ConfigError
from rlvr_jax.config import (
    Config,
    LossConfig,
    OptimizerConfig,
    SamplerConfig,
    SamplingConfig,
)
from rlvr_jax.learn.batches import batch_from_rollouts, with_loss_weights
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.update import TrainState, Updater
from rlvr_jax.models import (
    Transformer,
    check_divisible,
    param_shardings,
    replicated_params,
)
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.sampler import SamplerLayout, pad_prompts, sample
from rlvr_jax.types import LossAux, Prompts, Rollouts
from tests.support.policies import named, random_tokens, tiny_policy

P, G, T = 8, 2, 6
ONE = (1, 1, 1)  # data, fsdp, tensor
SHAPES = [(8, 1, 1), (2, 2, 2), (1, 4, 2)]
COMPILES = CompileCounter()
OPTIMIZER = OptimizerConfig(clip_norm=1e9, warmup_steps=0)
SAMPLING = SamplingConfig(max_new_tokens=T, temperature=0.9, top_p=0.95)


VARIANTS = {
    "plain": {},
    "sequence": {"sequence_parallel": True},
    "scan": {"scan_layers": True, "remat": "block"},
    "scan, sequence": {"scan_layers": True, "remat": "dots", "sequence_parallel": True},
}


def _policy(variant: str = "plain") -> Transformer:
    # 24 divides over the tensor axis
    return tiny_policy(num_layers=1, vocab_size=24, **VARIANTS[variant])


def _mesh(shape: tuple[int, int, int]) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _laid_out(mesh: Mesh, variant: str = "plain"):
    """Returns (graphdef, params) of the tiny policy on the mesh."""
    policy = _policy(variant)
    graphdef, params = nnx.split(policy)
    return graphdef, jax.device_put(params, param_shardings(policy, mesh))


def _layout(
    shape: tuple[int, int, int], tensor: int, policy: Transformer | None = None
) -> SamplerLayout:
    policy = policy or _policy()
    model = dataclasses.replace(policy.config, max_seq_len=512)  # as Config's defaults
    asked = Config(model=model, sampler=SamplerConfig(tensor_parallel=tensor))
    return SamplerLayout.from_config(asked, policy, _mesh(shape))


def _prompts() -> Prompts:
    return pad_prompts(
        [random_tokens(1, 1 + p % 4, seed=p)[0] for p in range(P)],
        uids=range(P),
        pad_multiple=4,
    )


@functools.cache
def _sampled(
    shape: tuple[int, int, int], *, tensor: int = 0, variant: str = "plain"
) -> Rollouts:
    """Returns the rollouts drawn on the mesh; `tensor` sets the sampler's mesh."""
    mesh, layout = _mesh(shape), _layout(shape, tensor)
    graphdef, params = _laid_out(mesh, variant)
    with jax.set_mesh(layout.mesh):
        rollouts = sample(
            graphdef,
            layout.place_params(params),
            jax.device_put(_prompts(), batch_sharding(layout.mesh)),
            jax.device_put(
                SamplingParams.from_config(SAMPLING), replicated_sharding(layout.mesh)
            ),
            key=jax.random.key(0),
            weight_version=np.int32(0),
            num_samples=G,
            max_new_tokens=T,
        )
    return jax.device_get(rollouts)


@dataclasses.dataclass(frozen=True)
class Updated:
    """The result of an optimizer step on a mesh, and what a second step compiled."""

    losses: LossAux
    gradient: dict[str, np.ndarray]
    params: dict[str, np.ndarray]
    layouts: list[TrainState]
    compiled_again: int


@functools.cache
def _updated(shape: tuple[int, int, int], variant: str = "plain") -> Updated:
    """Returns what a step on one device's rollouts does on the mesh."""
    mesh = _mesh(shape)
    advantages = np.random.RandomState(0).standard_normal(P * G).astype(np.float32)
    batch = with_loss_weights(
        batch_from_rollouts(_sampled(ONE), advantages),
        aggregation="token_mean",
        max_length=T,
    )
    with jax.set_mesh(mesh):
        graphdef, params = _laid_out(mesh, variant)
        updater = Updater(
            graphdef,
            policy_objective(LossConfig()),
            optimizer=OPTIMIZER,
            total_steps=10,
            logits_chunk_size=0,
        )
        sampling = jax.device_put(
            SamplingParams.from_config(SAMPLING), replicated_sharding(mesh)
        )
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


def _many(*slow: object, gate: list[Any]) -> list[Any]:
    rest = [each for each in slow if each not in gate]
    return [
        *gate,
        *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in rest),
    ]


@pytest.mark.parametrize(
    ("shape", "tensor", "variant"),
    _many(
        *((shape, tensor, "plain") for shape in SHAPES for tensor in (1, 2)),
        *((shape, 0, "plain") for shape in [(2, 1, 1), (1, 2, 4)]),
        *((shape, 0, name) for shape in SHAPES for name in VARIANTS if name != "plain"),
        gate=[
            *((shape, 0, "plain") for shape in SHAPES),
            ((1, 4, 2), 1, "plain"),
            ((1, 8, 1), 4, "plain"),
        ],
    ),
    ids=str,
)
def test_rollouts_are_the_same_token_for_token(shape, tensor, variant):
    """Weights may lie anywhere in the update, and the sampler may have any mesh."""
    one, many = _sampled(ONE), _sampled(shape, tensor=tensor, variant=variant)
    np.testing.assert_array_equal(many.tokens, one.tokens)
    np.testing.assert_array_equal(many.lengths, one.lengths)
    np.testing.assert_array_equal(many.finished, one.finished)
    np.testing.assert_allclose(many.logprobs, one.logprobs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "variant"),
    _many(
        *((shape, name) for shape in SHAPES for name in list(VARIANTS)[1:]),
        ((2, 1, 1), "plain"),
        gate=[*((shape, "plain") for shape in SHAPES), ((1, 4, 2), "sequence")],
    ),
    ids=str,
)
def test_losses_gradients_and_parameters_are_the_same(shape, variant):
    one, many = _updated(ONE), _updated(shape, variant)
    found = vars(many.losses) | many.losses.scalars
    for name, value in (vars(one.losses) | one.losses.scalars).items():
        if value is None or name == "scalars":  # None: only with a probe
            continue
        count = (
            1 if name in ("loss", "logprob_mismatch_max") else float(one.losses.tokens)
        )
        limit = 1e-5 * count  # the others are sums over tokens
        assert found[name] == pytest.approx(value, rel=1e-5, abs=limit)
    for name, gradient in one.gradient.items():
        scale = np.abs(gradient).max()
        assert scale > 0, name
        np.testing.assert_allclose(
            many.gradient[name], gradient, rtol=0, atol=1e-5 * scale, err_msg=name
        )
        # Adam's first step is the gradient's sign, which rounding decides near 0.
        clear = np.abs(gradient) > 1e-3 * scale
        np.testing.assert_allclose(
            many.params[name][clear], one.params[name][clear], rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("shape", [ONE, *SHAPES], ids=str)
def test_a_step_keeps_every_layout_so_that_the_next_compiles_nothing(shape):
    """Parameters and moments keep the layout of their logical axes."""
    updated = _updated(shape)
    expected = jax.tree.leaves(param_shardings(_policy(), _mesh(shape)))
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
    """Two key/value heads and 23 tokens on four devices; four query heads do divide."""
    mesh = _mesh((1, 2, 4))
    layout = param_shardings(tiny_policy(num_layers=1, vocab_size=23), mesh)
    blocks = layout["blocks"]
    assert layout["embedding"].spec == Spec(None, ("fsdp",))
    assert blocks["key"].spec == Spec(None, ("fsdp",), None, None)
    assert blocks["query"].spec == Spec(None, ("fsdp",), ("tensor",), None)


def test_logical_axes_lie_where_the_table_says():
    mesh = _mesh((2, 2, 2))
    assert partition_spec((8, 3), ("batch", None), mesh) == Spec(("data", "fsdp"), None)
    assert partition_spec((6, 3), ("batch", None), mesh) == Spec(None, None)
    assert partition_spec((), (), mesh) == Spec()


def test_an_axis_without_a_rule_is_refused():
    with pytest.raises(ValueError, match=r"no rule for the logical axes .*sequences"):
        partition_spec((8,), ("sequences",), _mesh((2, 2, 2)))


@pytest.mark.parametrize(
    "axes", [("batch", "embed"), ("heads", "mlp"), ("vocab", "vocab")]
)
def test_two_axes_of_an_array_cannot_lie_on_one_mesh_axis(axes):
    with pytest.raises(ValueError, match="share a mesh axis"):
        partition_spec((8, 8), axes, _mesh((2, 2, 2)))


def test_the_mesh_takes_what_the_other_axes_leave():
    assert make_mesh(MeshConfig()).shape == {"data": 8, "fsdp": 1, "tensor": 1}
    mesh = make_mesh(MeshConfig(fsdp=2, tensor=2))
    assert mesh.shape == {"data": 2, "fsdp": 2, "tensor": 2}
    assert replicated_sharding(mesh) == NamedSharding(mesh, Spec())


class Chip(types.SimpleNamespace):
    """The attributes of a TPU chip that JAX reads to lay a mesh over the torus."""

    __hash__ = object.__hash__


@pytest.mark.parametrize("kind", ["TPU v5 lite", "TPU v6 lite"])
def test_an_axis_of_a_torus_may_be_split_and_neighbors_share_tensors(kind):
    chips = [
        Chip(platform="tpu", device_kind=kind, coords=(x, y, 0), core_on_chip=0, id=n)
        for n, (y, x) in enumerate(itertools.product(range(16), range(16)))
    ]
    mesh = make_mesh(MeshConfig(fsdp=64, tensor=4), chips)
    assert mesh.shape == {"data": 1, "fsdp": 64, "tensor": 4}
    assert len({chip.coords for chip in mesh.devices.flat}) == 256
    for group in mesh.devices[0]:
        assert {chip.coords[1] for chip in group} == {group[0].coords[1]}
        columns = [chip.coords[0] for chip in group]
        assert columns == list(range(columns[0], columns[0] + 4))


@pytest.mark.parametrize(
    ("axes", "fix"),
    [
        ({"data": 3}, "or set mesh.data=-1 to"),
        ({"fsdp": 3}, " must divide 8; data=-1 takes the rest"),
        ({"data": 4}, "or set mesh.data=-1 to"),
        ({"tensor": 16}, " must divide 8; data=-1 takes the rest"),
    ],
)
def test_a_mesh_that_does_not_use_the_devices_exactly_is_refused(axes, fix):
    with pytest.raises(ConfigError, match=f"does not use the 8 devices exactly.*{fix}"):
        make_mesh(MeshConfig(**axes))


def test_a_batch_must_divide_over_data_and_fsdp():
    mesh = _mesh((2, 2, 2))
    check_batch(8, mesh, "train.batch_size")
    with pytest.raises(
        ConfigError, match=r"train.batch_size=6 cannot be split over 4 devices"
    ):
        check_batch(6, mesh, "train.batch_size")


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ((1, 1, 8), {}, r"model.num_heads=4 .* mesh.tensor=8.* choose .* \[1, 2, 4\]"),
        (
            (2, 1, 4),
            {"intermediate_size": 50},
            r"model.intermediate_size=50 .* mesh.tensor=4",
        ),
        (
            (1, 8, 1),
            {"hidden_size": 36},
            r"model.hidden_size=36 .* mesh.fsdp=8.* \[1, 2, 3, 4, 6\]",
        ),
    ],
    ids=["heads", "mlp", "width"],
)
def test_a_mesh_that_would_hold_most_of_the_policy_whole_is_refused(
    shape, changes, message
):
    config = dataclasses.replace(_policy().config, **changes)
    with pytest.raises(ConfigError, match=message):
        check_divisible(config, _mesh(shape), "mesh.tensor")


def test_arrays_that_may_be_whole_are_reported():
    """Tests two key/value heads over four devices, and a vocabulary of 23."""
    policy, mesh = tiny_policy(num_layers=1, vocab_size=23), _mesh((1, 2, 4))
    check_divisible(policy.config, mesh, "mesh.tensor")
    assert replicated_params(policy, mesh) == [
        "blocks.key: kv_heads (2 over 4)",
        "blocks.value: kv_heads (2 over 4)",
        "embedding: vocab (23 over 4)",
    ]


def test_an_update_writes_its_state_where_the_old_one_lay():
    """By the compiler's report, donation avoids a second copy of state or gradient."""
    mesh = _mesh((1, 4, 2))
    with jax.set_mesh(mesh):
        graphdef, params = _laid_out(mesh)
        updater = Updater(
            graphdef,
            policy_objective(LossConfig()),
            optimizer=OPTIMIZER,
            total_steps=10,
            logits_chunk_size=0,
        )
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
            params,
        )
        state, total = updater.shapes(shapes, None)
        update = updater._apply.lower(state, total[0]).compile().memory_analysis()
    assert update.alias_size_in_bytes >= _shard_bytes(state)
    assert update.temp_size_in_bytes < _shard_bytes(state)


def _shard_bytes(tree: PyTree) -> int:
    """Returns the bytes that one device holds of laid-out shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )
