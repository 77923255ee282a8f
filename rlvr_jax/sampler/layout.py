"""The sharding of the policy while it samples.

On a mesh with `fsdp`, decoding where the update left the weights gathers every one of
them for every token. The sampler may have a mesh of its own over the same devices; one
program, once a rollout batch, casts the weights to the compute dtype and moves them
there. The update's own weights stay where they are.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from job_jax.mesh import batch_sharding, replicated_sharding, reshape_mesh
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
    """The sampler's mesh, and the program that brings weights to it, if it is another.

    `bytes_held` are the bytes of the sampler's copy on one device, `bytes_received`
    those that come from other devices; both are of the device with the most.
    """

    mesh: Mesh
    reshard: jax.stages.Wrapped | None = None
    bytes_held: int = 0
    bytes_received: int = 0

    @classmethod
    def from_config(
        cls, config: Config, policy: Transformer, mesh: Mesh
    ) -> "SamplerLayout":
        """Returns the layout that `config.sampler` asks for. Raises ConfigError.

        Where it is the update's own, in the parameters' dtype, nothing is copied.
        """
        own, model = sampler_mesh(config, mesh), config.model
        if own.shape == mesh.shape and (
            config.sampler.tensor_parallel == 0
            or model.param_dtype == model.compute_dtype
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
        return cls(
            mesh=own,
            reshard=jax.jit(read, out_shardings=after),
            bytes_held=int(held_D.max()),
            bytes_received=int(received_D.max()),
        )

    def place_params(self, params: Any) -> Any:
        """Returns the parameters as the sampler reads them, moved to its mesh."""
        if self.reshard is None:
            return params
        return jax.block_until_ready(self.reshard(params))

    def place_prompts(self, prompts: Prompts) -> Prompts:
        """Returns the record, on the update's mesh or in NumPy, on the sampler's."""
        return self._move(prompts, batch_sharding(self.mesh))

    def replicate(self, tree: Any) -> Any:
        """Returns the tree replicated on every device of the sampler's mesh."""
        return self._move(tree, replicated_sharding(self.mesh))

    def _move(self, tree: Any, layout: NamedSharding) -> Any:
        return tree if self.reshard is None else _move_program(layout)(tree)

    def abstract_params(self, params: Any) -> Any:
        """Returns the shapes of `weights`, laid out, from those of parameters."""
        if self.reshard is None:
            return params
        found = self.reshard.lower(params).out_info
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), found
        )


def sampler_mesh(config: Config, mesh: Mesh) -> Mesh:
    """Returns the mesh to sample on, the update's or another over the same devices.

    Raises ConfigError where devices or heads do not divide.
    """
    if config.sampler.tensor_parallel == 0:
        return mesh
    own = reshape_mesh(mesh, config.sampler.tensor_parallel, "sampler.tensor_parallel")
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
        """Returns the numbers that lie in all of the boxes."""
        sides = 1
        for size, *slices in zip(array.shape, *boxes, strict=True):
            bounds = [each.indices(size) for each in slices]
            first, last = max(b[0] for b in bounds), min(b[1] for b in bounds)
            sides *= max(0, last - first)
        return sides

    held = [count(box) for box in new.values()]
    kept = [count(box, old[device]) for device, box in new.items()]
    numbers = np.array([held, np.subtract(held, kept)])
    return numbers * array.dtype.itemsize
