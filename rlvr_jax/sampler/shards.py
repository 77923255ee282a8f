"""Rows of arrays, taken within each shard of the batch, so none leaves its device."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as Spec
from jaxtyping import PyTree

from job_jax.mesh import LOGICAL_AXIS_RULES

Tree = TypeVar("Tree")


def per_shard(num_shards: int, function: Callable[..., Tree], *trees: PyTree) -> Tree:
    """Returns the function's results on the rows of each shard separately."""
    if num_shards == 1:
        return function(*trees)
    batch_axes = LOGICAL_AXIS_RULES["batch"]

    def spec(x: object) -> Spec:
        return Spec(*(None,) * _row_axis(x), batch_axes)

    def of_shard(x: jax.Array) -> jax.ShapeDtypeStruct:
        shape, axis = list(x.shape), _row_axis(x)
        shape[axis] //= num_shards
        return jax.ShapeDtypeStruct(tuple(shape), x.dtype)

    results = jax.eval_shape(function, *jax.tree.map(of_shard, trees))
    return jax.shard_map(
        function,
        in_specs=jax.tree.map(spec, trees),
        out_specs=jax.tree.map(spec, results),
        axis_names=set(batch_axes),
        check_vma=False,
    )(*trees)


def take_rows(tree: Tree, index_R: jax.Array) -> Tree:
    """Returns these rows of every array; an index that is too large gives the last."""
    return jax.tree.map(
        lambda x: jnp.take(x, index_R, axis=_row_axis(x), mode="clip"), tree
    )


def _row_axis(x: Any) -> int:
    """Returns the axis of rows; keys and values [L, B, K, S, H] have one before it."""
    return max(0, x.ndim - 4)
