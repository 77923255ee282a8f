"""The sharding of the policy while it samples.

On a mesh with `fsdp`, decoding with the update's sharding would gather all weights for
every token. The sampler may have its own mesh, over the same devices or over devices of
its own. Then, once per rollout batch, the weights are cast to the compute dtype and
moved there. The update's own weights stay where they are.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import PyTree

from job_jax.config import MeshConfig
from job_jax.mesh import (
    batch_sharding,
    make_mesh,
    replicated_sharding,
    reshape_mesh,
)
from job_jax.processes import process_count
from job_jax.schema import check
from rlvr_jax.config import Config
from rlvr_jax.models import (
    Transformer,
    cast_for_compute,
    check_divisible,
    param_shardings,
)
from rlvr_jax.types import Prompts


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplerLayout:
    """The sampler's mesh, and the program that moves weights to it if they differ.

    `bytes_held` are the bytes of the sampler's copies on one device, `bytes_received`
    the bytes that come from other devices per step; both are for the device with the
    most. No program spans the devices of two meshes. If the sampler has its own
    devices, `reshard` casts on the update's devices, and `own_shardings` is where
    weights go.
    """

    mesh: Mesh
    reshard: jax.stages.Wrapped | None = None
    own_shardings: PyTree = None
    bytes_held: int = 0
    bytes_received: int = 0

    @property
    def has_own_devices(self) -> bool:
        """Returns whether the sampler has devices that the update does not use."""
        return self.own_shardings is not None

    @classmethod
    def from_config(
        cls,
        config: Config,
        policy: Transformer,
        mesh: Mesh,
        devices: Sequence[jax.Device] | None = None,
    ) -> "SamplerLayout":
        """Returns the layout that `config.sampler` describes. Raises ConfigError.

        `mesh` is the update's; `devices` are all of the run's (default: JAX's). If the
        layout and the dtype are the update's own, nothing is copied.
        """
        own, model = sampler_mesh(config, mesh, devices), config.model
        has_own_devices = config.sampler.devices > 0
        if (
            own.shape == mesh.shape
            and not has_own_devices
            and (
                config.sampler.tensor_parallel == 0
                or model.param_dtype == model.compute_dtype
            )
        ):
            return cls(mesh=mesh)
        read = functools.partial(cast_for_compute, dtype=model.compute_dtype)
        before, after = param_shardings(policy, mesh), param_shardings(policy, own)
        abstract = jax.eval_shape(read, nnx.state(policy))
        moves = [
            _transfer_bytes(*leaf)
            for leaf in zip(
                *map(jax.tree.leaves, (abstract, before, after)), strict=True
            )
        ]
        held_D, received_D = np.sum(moves, axis=0)
        # With staleness 2, one copy samples and one waits for its turn.
        num_copies = max(1, config.train.staleness) if has_own_devices else 1
        return cls(
            mesh=own,
            reshard=jax.jit(read, out_shardings=before if has_own_devices else after),
            own_shardings=after if has_own_devices else None,
            bytes_held=num_copies * int(held_D.max()),
            bytes_received=int(received_D.max()),
        )

    def place_params(self, params: nnx.State) -> nnx.State:
        """Returns the parameters in the sampler's dtype, moved to its mesh."""
        if self.reshard is None:
            return params
        weights = self.reshard(params)
        if self.has_own_devices:
            weights = jax.device_put(weights, self.own_shardings)
        return jax.block_until_ready(weights)

    def place_prompts(self, prompts: Prompts) -> Prompts:
        """Returns the record, on the update's mesh or in NumPy, on the sampler's."""
        return self._move(prompts, batch_sharding(self.mesh))

    def replicate(self, tree: PyTree) -> PyTree:
        """Returns the tree replicated on every device of the sampler's mesh."""
        return self._move(tree, replicated_sharding(self.mesh))

    def _move(self, tree: PyTree, layout: NamedSharding) -> PyTree:
        if self.has_own_devices:
            return jax.device_put(tree, layout)
        return tree if self.reshard is None else _move_program(layout)(tree)

    def abstract_params(self, params: nnx.State) -> nnx.State:
        """Returns the shapes and shardings of the sampler's weights."""
        if self.reshard is None:
            return params
        found = self.reshard.lower(params).out_info
        leaves, structure = jax.tree.flatten(found)
        shardings = jax.tree.leaves(self.own_shardings) or [x.sharding for x in leaves]
        laid_out = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
            for x, sharding in zip(leaves, shardings, strict=True)
        ]
        return jax.tree.unflatten(structure, laid_out)


def update_mesh(config: Config, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns the mesh to learn on: the devices that the sampler does not use.

    `devices` default to JAX's. Raises ConfigError.
    """
    number = config.sampler.devices
    if not number:
        return make_mesh(config.mesh, devices)
    check(
        process_count() == 1,
        f"sampler.devices={number} sends weights between devices of one process, and "
        f"this run has {process_count()}; set sampler.devices=0",
    )
    found = jax.devices() if devices is None else devices
    check(
        number < len(found),
        f"sampler.devices={number} of {len(found)} devices leaves none to learn on; "
        "lower it (0: sampler and update take turns on all)",
    )
    return make_mesh(config.mesh, found[:-number])


def sampler_mesh(
    config: Config, mesh: Mesh, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """Returns the mesh to sample on.

    It is the update's `mesh`, or another one over the same devices, or one over the
    last of all `devices` if the sampler has its own. Raises ConfigError if devices or
    heads do not divide.
    """
    tensor, number = config.sampler.tensor_parallel, config.sampler.devices
    if tensor == 0:
        return mesh
    if number:
        last = (jax.devices() if devices is None else devices)[-number:]
        own = make_mesh(MeshConfig(tensor=tensor), last)
    else:
        own = reshape_mesh(mesh, tensor, "sampler.tensor_parallel")
    check_divisible(config.model, own, "sampler.tensor_parallel")
    return own


@functools.cache
def _move_program(layout: NamedSharding) -> Callable[[Any], Any]:
    """Returns the program that moves arrays to this sharding from any mesh."""
    return jax.jit(lambda tree: tree, out_shardings=layout)


def _transfer_bytes(
    array: jax.ShapeDtypeStruct, before: NamedSharding, after: NamedSharding
) -> np.ndarray:
    """Returns the bytes that each device holds after a move, and those it receives."""
    old, new = (each.devices_indices_map(array.shape) for each in (before, after))

    def count(*boxes: tuple[slice, ...]) -> int:
        """Returns how many numbers are in all of the boxes."""
        sides = 1
        for size, *slices in zip(array.shape, *boxes, strict=True):
            bounds = [each.indices(size) for each in slices]
            first, last = max(b[0] for b in bounds), min(b[1] for b in bounds)
            sides *= max(0, last - first)
        return sides

    held = [count(box) for box in new.values()]
    kept = [
        count(box, old[device]) if device in old else 0 for device, box in new.items()
    ]
    numbers = np.array([held, np.subtract(held, kept)])
    return numbers * array.dtype.itemsize
