"""Lag-1 autocorrelation: how well a latent's activation predicts it on the next token.

    rho = corr(f_{t-1}, f_t)    over all pairs of neighbors, for every latent

At 1 the activation does not change; at 0 the next token's is unrelated. Unlike a slope,
it does not depend on the size of the activations. It is computed from sums that add up
over batches.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class NeighborSums:
    """Sums over pairs of neighbors, for every latent. Made by `sum_neighbors`."""

    first: Float[Array, " Z"]  # sum of f_{t-1}
    second: Float[Array, " Z"]  # sum of f_t
    first_squares: Float[Array, " Z"]
    second_squares: Float[Array, " Z"]
    products: Float[Array, " Z"]


def sum_neighbors(
    f: Float[Array, "S T Z"], neighbors: Bool[Array, "S T-1"]
) -> NeighborSums:
    """Returns the sums over the pairs (t, t + 1) that `neighbors` marks.

    >>> f = jnp.array([[[0.0], [1.0], [0.0], [1.0], [0.0]]])
    >>> sums = sum_neighbors(f, jnp.ones((1, 4), bool))
    >>> lag1_autocorrelation(sums, pairs=4).tolist()
    [-1.0]
    """
    first, second = (
        jnp.where(neighbors[:, :, None], part, 0.0) for part in (f[:, :-1], f[:, 1:])
    )
    terms = {
        "first": first,
        "second": second,
        "first_squares": first**2,
        "second_squares": second**2,
        "products": first * second,
    }
    return NeighborSums(**{name: part.sum((0, 1)) for name, part in terms.items()})


def lag1_autocorrelation(
    sums: NeighborSums, *, pairs: float
) -> Float[np.ndarray, " Z"]:
    """Returns each latent's autocorrelation, or NaN if it does not vary."""
    count = max(float(pairs), 1.0)
    a, b, aa, bb, ab = (
        np.asarray(part, np.float64) / count
        for part in (
            sums.first,
            sums.second,
            sums.first_squares,
            sums.second_squares,
            sums.products,
        )
    )
    variances = np.stack([aa - a**2, bb - b**2])
    # Rounding leaves this much variance in a constant, which does not vary.
    varies = (variances > 1e-6 * np.stack([aa, bb])).all(axis=0)
    norm = np.sqrt(np.where(varies, variances.prod(axis=0), 1.0))
    return np.where(varies, np.clip((ab - a * b) / norm, -1.0, 1.0), np.nan)
