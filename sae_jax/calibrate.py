"""Calibrates the inference threshold to k active latents a token on documents."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sae_jax.data.tokens import Documents
from sae_jax.sae import TSAE
from sae_jax.sparsity import just_below, search_thresholds

_TOLERANCE = 0.001  # relative, in the number of active latents
_MAX_COUNT = 2**31 - 2  # larger counts are clipped, because they are int32


def calibrate_threshold(tsae: TSAE, documents: Sequence[Documents], *, k: int) -> TSAE:
    """Returns the autoencoder with a threshold at which k latents a token are active.

    That holds on average over all tokens of the documents, to 0.1 %, and takes a few
    passes over them. If fewer than k latents a token are positive, all positive ones
    stay active. Raises ValueError if no token is in a mask.

    >>> import numpy as np
    >>> tsae = TSAE.init(0, width=8, latents=32)
    >>> x = np.random.default_rng(0).normal(size=(1, 50, 8)).astype(np.float32)
    >>> documents = Documents(
    ...     x=x, mask=np.ones((1, 50), bool), token_index=np.arange(50)[None]
    ... )
    >>> calibrated = calibrate_threshold(tsae, [documents], k=4)
    >>> int((calibrated.encode(x) > 0).sum())  # 4 active latents a token
    200
    """
    tokens = sum(int(block.mask.sum()) for block in documents)
    if tokens == 0:
        raise ValueError("no token to calibrate on; give more eval documents")

    def count_at_least(threshold_R: Float[Array, " 1"]) -> Int[Array, " 1"]:
        active = sum(
            int(_count_active(tsae, block.x, block.mask, threshold_R[0]))
            for block in documents
        )
        return jnp.full(1, min(active, _MAX_COUNT), jnp.int32)

    wanted = k * tokens
    threshold_R, _ = search_thresholds(
        count_at_least,
        jnp.full(1, wanted, jnp.int32),
        initial_probes=[],
        max_excess=int(_TOLERANCE * wanted),
        while_loop=_host_loop,
    )
    # `encode` keeps latents above the threshold; the search also counts those at it.
    threshold = jnp.full(tsae.latents, just_below(threshold_R)[0], jnp.float32)
    return dataclasses.replace(tsae, threshold=threshold)


@jax.jit
def _count_active(
    tsae: TSAE, x: Float[Array, "S T D"], mask: Bool[Array, "S T"], threshold: Array
) -> Int[Array, ""]:
    x = jnp.where(mask[:, :, None], x.astype(jnp.float32), 0.0)
    pre = tsae.preactivations(x)
    return jnp.sum((pre >= threshold) & mask[:, :, None], dtype=jnp.int32)


def _host_loop(unfinished: Callable, body: Callable, bracket: tuple) -> tuple:
    while bool(unfinished(bracket)):
        bracket = body(bracket)
    return bracket
