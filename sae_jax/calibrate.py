"""The inference threshold by bisection: on held-out tokens, L0 is k."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sae_jax.sae import TSAE
from sae_jax.sparsity import just_below, search
from sae_jax.tokens import Documents

_TOLERANCE = 0.001  # of the active latents
_MOST = 2**31 - 2  # a count above it is as good as it


def calibrate(tsae: TSAE, documents: Sequence[Documents], *, k: int) -> TSAE:
    """Returns the dictionary with the threshold at which k latents a token are active.

    Counted over all documents, to 0.1 %, with a few passes over them. Where fewer than
    k latents a token are positive at all, the threshold lets every one of them by.
    Raises ValueError where no token is counted.
    """
    tokens = sum(int(block.counted.sum()) for block in documents)
    if tokens == 0:
        raise ValueError("no token to calibrate on; hold out more documents")

    def counter(cut_R: Float[Array, " 1"]) -> Int[Array, " 1"]:
        found = sum(
            int(_active(tsae, block.x, block.counted, cut_R[0])) for block in documents
        )
        return jnp.full(1, min(found, _MOST), jnp.int32)

    wanted = k * tokens
    cut_R, _ = search(
        counter,
        jnp.full(1, wanted, jnp.int32),
        first=[],
        slack=int(_TOLERANCE * wanted),
        loop=_host_loop,
    )
    # An activation must exceed the threshold, where the search counts what reaches it.
    threshold = jnp.full(tsae.latents, just_below(cut_R)[0], jnp.float32)
    return dataclasses.replace(tsae, threshold=threshold)


@jax.jit
def _active(
    tsae: TSAE, x: Float[Array, "S T D"], counted: Bool[Array, "S T"], cut: Array
) -> Int[Array, ""]:
    x = jnp.where(counted[:, :, None], x.astype(jnp.float32), 0.0)
    pre = tsae.preactivations(x)
    return jnp.sum((pre >= cut) & counted[:, :, None], dtype=jnp.int32)


def _host_loop(unfinished: Callable, body: Callable, bracket: tuple) -> tuple:
    while bool(unfinished(bracket)):
        bracket = body(bracket)
    return bracket
