"""Parameters: how they are drawn, and the logical axes that each one carries.

The axes travel with the parameter into whatever tree is shaped like the parameters
(gradients, optimizer moments), so one function lays all of them out.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from job_jax.mesh import constrain, partition, undivided
from job_jax.schema import require
from rlvr_jax.config import ModelConfig


def normal(
    rngs: nnx.Rngs,
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    *,
    fan_in: int,
    config: ModelConfig,
) -> nnx.Param:
    """Returns a parameter drawn with standard deviation init_scale / sqrt(fan_in)."""
    std = config.init_scale * fan_in**-0.5
    value = std * jax.random.normal(rngs.params(), shape)
    return nnx.Param(value.astype(config.param_dtype), axes=axes)


def constant(
    value: float, shape: tuple[int, ...], axes: tuple[str, ...], *, config: ModelConfig
) -> nnx.Param:
    """Returns a parameter that starts at `value`."""
    return nnx.Param(jnp.full(shape, value, config.param_dtype), axes=axes)


def shardings(model: nnx.Module, mesh: Mesh, which: Any = ...) -> Any:
    """Returns a tree like the parameters' with each one's layout on the mesh.

    `which` is an nnx filter; without it, of all parameters.
    """

    def layout(param: nnx.Param) -> NamedSharding:
        return NamedSharding(mesh, partition(param.shape, _axes(param), mesh))

    return jax.tree.map(layout, nnx.state(model, which), is_leaf=_is_parameter)


def laid_out_shapes(model: nnx.Module, mesh: Mesh, which: Any = ...) -> Any:
    """Returns a tree like the parameters' with shapes, types and layouts for arrays.

    `which` is an nnx filter; without it, of all parameters.
    """

    def shaped(layout: NamedSharding, param: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout),
            param,
        )

    return jax.tree.map(shaped, shardings(model, mesh, which), nnx.state(model, which))


def check_divides(config: ModelConfig, mesh: Mesh, what: str) -> None:
    """Raises ConfigError where the mesh would hold most of the policy whole.

    `what` names the field that sets its `tensor` axis. Query heads and the MLP lie over
    it, rows of every matrix over `fsdp`. Key/value heads and vocabulary may be whole.
    """
    tensor, fsdp = mesh.shape["tensor"], mesh.shape["fsdp"]
    for size, name, parts, axis in (
        (config.heads, "heads", tensor, what),
        (config.mlp_width, "mlp_width", tensor, what),
        (config.width, "width", fsdp, "mesh.fsdp"),
    ):
        fits = [n for n in range(1, parts + 1) if size % n == 0]
        require(
            size % parts == 0,
            f"model.{name}={size} does not divide over {axis}={parts}, and every "
            f"device would hold all of it; choose {axis} of {fits}",
        )


def held_whole(model: nnx.Module, mesh: Mesh) -> list[str]:
    """Returns the parameters that are not split as RULES say, each with the axis."""
    return [
        f"{'.'.join(map(str, path))}: {axis}"
        for path, param in nnx.to_flat_state(nnx.state(model))
        for axis in undivided(param.shape, _axes(param), mesh)
    ]


def for_passes(params: Any, dtype: str) -> Any:
    """Returns parameters as every pass reads them: matrices in the compute dtype.

    Vectors (the final norm's scale) are read in float32 as they are, and so kept.
    """

    def read(x: jax.Array) -> jax.Array:
        wide = jnp.issubdtype(x.dtype, jnp.floating) and x.ndim > 1
        return x.astype(dtype) if wide else x

    return jax.tree.map(read, params)


def layer_sharding(layout: Sharding) -> Sharding:
    """Returns the layout of one layer of a parameter that is stacked as `layout` is."""
    if isinstance(layout, NamedSharding):
        return NamedSharding(layout.mesh, PartitionSpec(*layout.spec[1:]))
    return layout


def laid_out(tree: Any) -> Any:
    """Returns the tree on the current mesh, if there is one.

    Whatever is shaped like a parameter lies as that parameter does; the rest is whole
    on every device.
    """

    def place(node: Any) -> Any:
        axes = _axes(node) if _is_parameter(node) else ()
        return jax.tree.map(lambda x: constrain(x, *axes), node)

    return jax.tree.map(place, tree, is_leaf=_is_parameter)


def _is_parameter(node: Any) -> bool:
    return isinstance(node, nnx.Param)


def _axes(param: nnx.Param) -> tuple[str, ...]:
    return param.get_metadata()["axes"]
