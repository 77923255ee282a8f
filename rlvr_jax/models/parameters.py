"""Parameters: their initial values, their logical axes, and products with them.

The axes travel with a parameter into every tree of the same structure (gradients,
optimizer moments), so one function shards all of them over a mesh. Parameters may have
any dtype; their gradients are summed over tokens in float32.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PyTree

from job_jax.mesh import partition_spec, unsharded_axes, with_logical_constraint
from job_jax.schema import check
from rlvr_jax.config import ModelConfig


def normal_param(
    rngs: nnx.Rngs,
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    *,
    fan_in: int,
    config: ModelConfig,
) -> nnx.Param:
    """Returns a normal random parameter with std init_scale / sqrt(fan_in)."""
    std = config.init_scale * fan_in**-0.5
    value = std * jax.random.normal(rngs.params(), shape)
    return nnx.Param(value.astype(config.param_dtype), axes=axes)


def constant_param(
    value: float, shape: tuple[int, ...], axes: tuple[str, ...], *, config: ModelConfig
) -> nnx.Param:
    """Returns a parameter that starts at `value`."""
    return nnx.Param(jnp.full(shape, value, config.param_dtype), axes=axes)


def param_shardings(
    model: nnx.Module, mesh: Mesh, param_filter: Any = ...
) -> nnx.State:
    """Returns each parameter's sharding on the mesh, in the parameters' tree.

    `param_filter` is an nnx filter that selects some of the parameters.
    """

    def layout(param: nnx.Param) -> NamedSharding:
        return NamedSharding(mesh, partition_spec(param.shape, _axes(param), mesh))

    return jax.tree.map(layout, nnx.state(model, param_filter), is_leaf=_is_parameter)


def abstract_params(
    model: nnx.Module, mesh: Mesh, param_filter: Any = ...
) -> nnx.State:
    """Returns each parameter's shape, dtype and sharding, in the parameters' tree.

    `param_filter` is an nnx filter that selects some of the parameters.
    """

    def shaped(layout: NamedSharding, param: object) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout),
            param,
        )

    return jax.tree.map(
        shaped,
        param_shardings(model, mesh, param_filter),
        nnx.state(model, param_filter),
    )


def check_divisible(config: ModelConfig, mesh: Mesh, tensor_field: str) -> None:
    """Raises ConfigError if the large dimensions do not divide over the mesh.

    Otherwise every device would hold most of the policy. Query heads and the MLP are
    split over the axis `tensor`, which the config field `tensor_field` sets, and the
    hidden size over `fsdp`. Key/value heads and vocabulary need not divide.
    """
    tensor, fsdp = mesh.shape["tensor"], mesh.shape["fsdp"]
    for size, name, parts, axis in (
        (config.num_heads, "num_heads", tensor, tensor_field),
        (config.intermediate_size, "intermediate_size", tensor, tensor_field),
        (config.hidden_size, "hidden_size", fsdp, "mesh.fsdp"),
    ):
        fits = [n for n in range(1, parts + 1) if size % n == 0]
        check(
            size % parts == 0,
            f"model.{name}={size} does not divide over {axis}={parts}, and every "
            f"device would hold all of it; choose {axis} of {fits}",
        )


def replicated_params(model: nnx.Module, mesh: Mesh) -> list[str]:
    """Returns "parameter: axis" for each axis that a parameter is not split over."""
    return [
        f"{'.'.join(map(str, path))}: {axis}"
        for path, param in nnx.to_flat_state(nnx.state(model))
        for axis in unsharded_axes(param.shape, _axes(param), mesh)
    ]


def cast_for_compute(params: nnx.State, dtype: str) -> nnx.State:
    """Returns parameters with matrices in the compute dtype.

    Vectors (the final norm's scale) are used in float32 and do not change.
    """

    def cast(x: jax.Array) -> jax.Array:
        is_matrix = jnp.issubdtype(x.dtype, jnp.floating) and x.ndim > 1
        return x.astype(dtype) if is_matrix else x

    return jax.tree.map(cast, params)


def layer_sharding(sharding: Sharding) -> Sharding:
    """Returns the sharding of one layer, given the stacked parameter's."""
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
    return sharding


def with_sharding(tree: PyTree) -> PyTree:
    """Returns the tree on the current mesh, if there is one.

    A node with a parameter's axes is sharded like that parameter; everything else is
    replicated on every device.
    """

    def place(node: Any) -> Any:
        axes = _axes(node) if _is_parameter(node) else ()
        return jax.tree.map(lambda x: with_logical_constraint(x, *axes), node)

    return jax.tree.map(place, tree, is_leaf=_is_parameter)


class Linear(nnx.Module):
    """Multiplies by a matrix [in, out] that has its own module.

    `models.lora` gives a weight its own module so that qwix can intercept the product:
    qwix then adds the low-rank adapters, or reads a quantized weight. A block's other
    weights are plain parameters.
    """

    def __init__(self, weight: jax.Array, axes: tuple[str, ...]):
        self.weight = nnx.Param(weight, axes=axes)

    def __call__(self, x_BTX: jax.Array) -> jax.Array:
        """Returns the product, [B, T, out]."""
        return jnp.einsum("btx,xy->bty", x_BTX, self.weight[...])


def linear(x_BTX: jax.Array, weight: nnx.Param | Linear) -> jax.Array:
    """Returns x W; leading axes of W are flattened until they match the width of x."""
    if isinstance(weight, Linear):
        return weight(x_BTX)
    return multiply_rows(x_BTX, weight[...].reshape(x_BTX.shape[-1], -1))


def multiply_rows(x_BTX: jax.Array, weight_XY: jax.Array) -> jax.Array:
    """Returns x W, [B, T, Y], multiplied as one matrix [B T, X].

    The gradient of W then contracts one axis. With two axes, XLA on CPU first makes a
    transposed copy of x, which takes as long as the product.
    """
    B, T, X = x_BTX.shape
    product_CY = x_BTX.reshape(B * T, X) @ weight_XY
    return product_CY.reshape(B, T, weight_XY.shape[1])


def look_up(
    table: Float[Array, " V D"], tokens: Int[Array, " B T"]
) -> Float[Array, " B T D"]:
    """Returns the tokens' rows of a table; a row's gradient is summed in float32.

    A frequent token's gradient is a sum over thousands of terms. A bfloat16 sum stops
    growing once a term is less than half of its spacing: 8,192 ones would give 256.
    """
    return _look_up(table.shape[0], table.dtype, table, tokens)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _look_up(
    num_rows: int, dtype: DTypeLike, table_VD: jax.Array, tokens_BT: jax.Array
) -> jax.Array:
    return table_VD[tokens_BT]


def _look_up_forward(
    num_rows: int, dtype: DTypeLike, table_VD: jax.Array, tokens_BT: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return table_VD[tokens_BT], tokens_BT


def _look_up_backward(
    num_rows: int, dtype: Any, tokens_BT: jax.Array, gradient_BTD: jax.Array
) -> tuple[jax.Array, None]:
    zeros_VD = jnp.zeros((num_rows, gradient_BTD.shape[-1]), jnp.float32)
    sum_VD = zeros_VD.at[tokens_BT].add(gradient_BTD.astype(jnp.float32))
    return sum_VD.astype(dtype), None


_look_up.defvjp(_look_up_forward, _look_up_backward)


def add_bias(x: Float[Array, "..."], bias: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns x plus a bias on its last axes; the bias's gradient is float32 sums.

    The result is rounded once, like x + bias in the dtype of x.
    """
    float32_bias = jnp.expand_dims(bias.astype(jnp.float32), range(x.ndim - bias.ndim))
    return (x.astype(jnp.float32) + float32_bias).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def einsum_float32(formula: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns a product of two arrays of one dtype, summed in float32.

    Its gradients are products in that dtype too: a float32 gradient is rounded to it
    first. Otherwise a product with one float32 operand would run in float32, at a small
    fraction of a TPU's or GPU's speed. Every letter of the formula must occur at least
    twice.
    """
    return jnp.einsum(formula, a, b, preferred_element_type=jnp.float32)


def _einsum_forward(
    formula: str, a: jax.Array, b: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return einsum_float32(formula, a, b), (a, b)


def _einsum_backward(
    formula: str, operands: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    a, b = operands
    inputs, output = formula.split("->")
    left, right = inputs.split(",")
    gradient = gradient.astype(a.dtype)

    def product(formula: str, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.einsum(formula, x, y, preferred_element_type=jnp.float32)

    by_a = product(f"{output},{right}->{left}", gradient, b)
    by_b = product(f"{left},{output}->{right}", a, gradient)
    return by_a.astype(a.dtype), by_b.astype(b.dtype)


einsum_float32.defvjp(_einsum_forward, _einsum_backward)


def check_token_ids(ids: Any, vocab_size: int, name: str, *, mask: Any = None) -> None:
    """Raises ValueError if one of the ids, called `name`, is not in the vocabulary.

    (Indexing an embedding out of bounds would silently read another token's row.) Ids
    where `mask` is False may have any value. While tracing, or if the values are on
    other processes, they cannot be read; then only the dtype is checked.
    """
    if np.dtype(ids.dtype).kind not in "iu":
        raise ValueError(f"{name} holds {ids.dtype}; it must hold token ids")
    for array in (ids, mask):
        if isinstance(array, jax.core.Tracer):
            return
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            return
    ids, mask = jax.device_get((ids, mask))
    wrong = (ids < 0) | (ids >= vocab_size)
    if mask is not None:
        wrong &= mask
    if wrong.any():
        raise ValueError(
            f"{name} holds the id {ids[wrong][0]}; the vocabulary has 0 to "
            f"{vocab_size - 1}"
        )


def _is_parameter(node: object) -> bool:
    return isinstance(node, nnx.Param)


def _axes(param: nnx.Param) -> tuple[str, ...]:
    return param.get_metadata()["axes"]
