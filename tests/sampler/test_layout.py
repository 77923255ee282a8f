"""The sampler's own mesh: which arrays move, the savings, and the refusals."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from job_jax.mesh import AXES, batch_sharding, replicated_sharding
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, SamplerConfig, SamplingConfig
from rlvr_jax.models import Transformer, param_shardings
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.plan.program_costs import program_costs
from rlvr_jax.sampler import SamplerLayout, pad_prompts, sample, update_mesh
from rlvr_jax.sampler import layout as layout_module
from tests.support.policies import tiny_policy


def _mesh(shape: tuple[int, int, int]) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _layout(mesh: Mesh, tensor: int, policy: Transformer) -> SamplerLayout:
    model = dataclasses.replace(policy.config, max_seq_len=512)  # as Config's defaults
    asked = Config(model=model, sampler=SamplerConfig(tensor_parallel=tensor))
    return SamplerLayout.from_config(asked, policy, mesh)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (3, "sampler.tensor_parallel=3 does not divide the mesh's 8 devices"),
        (8, "model.num_heads"),
    ],
)
def test_a_samplers_mesh_that_does_not_divide_is_refused(tensor, message):
    with pytest.raises(ConfigError, match=message):
        _layout(_mesh((2, 2, 2)), tensor, tiny_policy())


def _split_config(devices: int, policy: Transformer, tensor: int = 1) -> Config:
    model = dataclasses.replace(policy.config, max_seq_len=512)
    sampler = SamplerConfig(devices=devices, tensor_parallel=tensor)
    return Config(model=model, sampler=sampler)


@pytest.mark.parametrize("tensor", [1, 2])
def test_the_last_devices_are_the_samplers_alone(tensor):
    """The update has six of eight devices; the sampler's weights go to the others."""
    policy = tiny_policy(num_layers=1, compute_dtype="bfloat16")
    config, devices = _split_config(2, policy, tensor), jax.devices()
    mesh = update_mesh(config)
    assert list(mesh.devices.flat) == devices[:6]
    layout = SamplerLayout.from_config(config, policy, mesh)
    assert list(layout.mesh.devices.flat) == devices[6:]
    assert layout.mesh.shape == {"data": 2 // tensor, "fsdp": 1, "tensor": tensor}
    assert layout.bytes_received == layout.bytes_held > 0
    params = jax.device_put(nnx.state(policy), param_shardings(policy, mesh))
    weights = layout.place_params(params)
    for found, given in zip(*map(jax.tree.leaves, (weights, params)), strict=True):
        assert found.sharding.device_set == set(devices[6:])
        expected = np.asarray(given.astype(found.dtype), np.float32)
        np.testing.assert_array_equal(np.asarray(found, np.float32), expected)
    abstract = jax.tree.map(lambda x: x.sharding, layout.abstract_params(params))
    assert abstract == jax.tree.map(lambda x: x.sharding, weights)
    largest = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(weights))
    assert layout.bytes_held == largest


@pytest.mark.parametrize("devices", [8, 9])
def test_a_sampler_that_leaves_no_device_to_learn_on_is_refused(devices):
    with pytest.raises(ConfigError, match=f"devices={devices} of 8 devices leaves"):
        update_mesh(_split_config(devices, tiny_policy()))


def test_devices_of_the_samplers_own_are_of_one_process(monkeypatch):
    monkeypatch.setattr(layout_module, "process_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"this run has 2; set sampler\.devices=0"):
        update_mesh(_split_config(4, tiny_policy()))


def test_a_reshard_is_counted_in_the_bytes_that_a_device_did_not_hold():
    """Moves from fsdp 4 and tensor 2 to tensor 1 and 2, in bfloat16.

    Matrices and embedding hold 24 x 32 + 32 x (4 + 2 + 2 + 4) x 8 + 3 x 32 x 48
    numbers, the norms 3 x 32. The device already had an eighth of the matrices and a
    quarter of the norms. The block's two norms are bfloat16 like matrices, because they
    are stacked; the last norm is float32.
    """
    matrices = 24 * 32 + 32 * 12 * 8 + 3 * 32 * 48
    norms = 2 * 2 * 32 + 4 * 32
    policy = tiny_policy(num_layers=1, vocab_size=24, compute_dtype="bfloat16")
    mesh = _mesh((1, 4, 2))
    whole = _layout(mesh, 1, policy)
    assert whole.bytes_held == 2 * matrices + norms
    assert whole.bytes_received == 2 * matrices * 7 // 8 + norms * 3 // 4
    shared = _layout(mesh, 2, policy)
    assert shared.bytes_held == matrices + norms
    assert shared.bytes_received == matrices * 3 // 4 + norms * 3 // 4


def test_a_device_receives_the_numbers_that_its_old_part_lacks():
    """Twelve numbers move from three devices to the first two of them, then on."""
    three, two, last = (
        NamedSharding(Mesh(np.array(devices), "x"), PartitionSpec("x"))
        for devices in (jax.devices()[:3], jax.devices()[:2], jax.devices()[2:4])
    )
    numbers = jax.ShapeDtypeStruct((12,), np.float32)

    def held_and_received(before, after):
        moved = layout_module._transfer_bytes(numbers, before, after)
        return (moved // 4).tolist()

    # 0-4, 4-8 and 8-12 become 0-6 and 6-12.
    assert held_and_received(three, two) == [[6, 6], [2, 4]]
    assert held_and_received(two, three) == [[4, 4, 4], [0, 2, 4]]
    assert held_and_received(three, last) == [[6, 6], [6, 6]]


def test_what_lies_as_the_sampler_wants_it_is_not_copied():
    """In bfloat16, float32 parameters are cast on their devices, without a transfer."""
    mesh, params = _mesh((4, 1, 2)), object()
    layout = _layout(mesh, 2, tiny_policy(num_layers=1))
    assert layout.mesh is mesh
    assert layout.place_params(params) is params
    halved = _layout(mesh, 2, tiny_policy(num_layers=1, compute_dtype="bfloat16"))
    assert halved.reshard is not None
    assert halved.bytes_received == 0


@pytest.mark.parametrize(
    ("tensor", "own"), [(2, True), pytest.param(0, False, marks=pytest.mark.slow)]
)
def test_decoding_with_weights_of_its_own_gathers_and_copies_none(tensor, own):
    """The compiler's report shows it; with the update's layout, decoding does both."""
    policy = tiny_policy(
        num_layers=4,
        hidden_size=64,
        intermediate_size=256,
        vocab_size=24,
        scan_layers=True,
    )
    mesh = _mesh((1, 4, 2))
    layout = _layout(mesh, tensor, policy)
    graphdef, params = nnx.split(policy)
    params = jax.device_put(params, param_shardings(policy, mesh))
    prompts = pad_prompts([[2, 3]] * 8, uids=range(8), pad_multiple=4)
    with jax.set_mesh(layout.mesh):
        program = sample.lower(
            graphdef,
            layout.place_params(params),
            jax.device_put(prompts, batch_sharding(layout.mesh)),
            jax.device_put(
                SamplingParams.from_config(SamplingConfig()),
                replicated_sharding(layout.mesh),
            ),
            key=jax.random.key(0),
            weight_version=np.int32(0),
            num_samples=2,
            max_new_tokens=6,
        ).compile()
    half = sum(leaf.nbytes for leaf in jax.tree.leaves(params)) // 2
    if own:
        assert half <= layout.bytes_held < 1.01 * half  # norms are not sharded
    sent = program_costs(program.as_text()).collective_bytes
    # Six tokens' activations are summed; gathering the weights once would be `half`.
    assert (sent < 0.5 * half) == own
    assert (program.memory_analysis().temp_size_in_bytes < 0.35 * half) == own


@pytest.mark.parametrize(("staleness", "copies"), [(0, 1), (1, 1), (2, 2)])
def test_a_copy_that_waits_for_its_turn_counts_as_held(staleness, copies):
    policy = tiny_policy(num_layers=1, compute_dtype="bfloat16")
    config = _split_config(2, policy)
    loss = dataclasses.replace(config.train.loss, tis_cap=2.0)
    train = dataclasses.replace(config.train, staleness=staleness, loss=loss)
    once, held = (
        SamplerLayout.from_config(each, policy, update_mesh(each)).bytes_held
        for each in (config, dataclasses.replace(config, train=train))
    )
    assert held == copies * once > 0
