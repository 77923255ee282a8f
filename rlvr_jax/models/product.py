"""A layer's products with its weights, as they are or through adapters.

A weight that adapters or quantisation concern is a `Product` in its block; any other
is a parameter. The blocks do not care which.
"""

import jax
import jax.numpy as jnp
from flax import nnx


class Product(nnx.Module):
    """x W, W a matrix [in, out] in a module of its own.

    `models.lora` has qwix intercept the product: it then adds what the adapters beside
    `weight` say, or reads a weight that is quantised.
    """

    def __init__(self, weight: jax.Array, axes: tuple[str, ...]):
        self.weight = nnx.Param(weight, axes=axes)

    def __call__(self, x_BTX: jax.Array) -> jax.Array:
        """Returns the product, [B, T, out]."""
        return jnp.einsum("btx,xy->bty", x_BTX, self.weight[...])


def times(x_BTX: jax.Array, weight: nnx.Param | Product) -> jax.Array:
    """Returns x W, the weight's leading axes joined to the width of x."""
    if isinstance(weight, Product):
        return weight(x_BTX)
    return x_BTX @ weight[...].reshape(x_BTX.shape[-1], -1)
