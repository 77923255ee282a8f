"""Where learning happens: sums over tokens by band, and by place and by class.

Of each token, with w its weight, A its completion's advantage and p = pi(token):

    tokens    1
    entropy   H of the distribution that it was drawn from, as the update sees it
    mass      |A w|, its share of the loss's scale
    push      |A w| (1 - p), the size of the surrogate's gradient by the token's own
              logit where the ratio is 1 and no bound holds it: a proxy, and ours
    movement  |log pi - log pi_old|

A place is a tenth of the completion: token t of n is in tenth floor(10 t / n). A class
is what the token says, from `token_classes`. Every token counts once in either.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rlvr_jax.types import BANDS, PLACES, TOKEN_CLASSES, TOKEN_MEASURES, Batch

CELLS = PLACES + len(TOKEN_CLASSES)


def no_token_sums() -> Float[Array, " Q K M"]:
    """Returns `token_sums` of no tokens."""
    return jnp.zeros((len(BANDS) + 1, CELLS, len(TOKEN_MEASURES)), jnp.float32)


def token_sums(
    logprobs: Float[Array, " B T"],
    entropies: Float[Array, " B T"],
    batch: Batch,
    *,
    classes: Int[np.ndarray, " V"] | None,
) -> Float[Array, " Q K M"]:
    """Returns each band's sums of TOKEN_MEASURES, as constants, that add up.

    Rows Q are BANDS, then what has no band; rows K the PLACES tenths of a completion,
    then the TOKEN_CLASSES, which are 0 where no `classes` are given. Padding is never
    read.
    """
    index_BT = jnp.arange(logprobs.shape[1], dtype=jnp.int32)[None]
    length_B1 = batch.lengths[:, None]
    mask_BT = index_BT < length_B1

    def inside(values: Array) -> Float[Array, " B T"]:
        return jnp.where(mask_BT, jax.lax.stop_gradient(values), 0.0)

    logprob_BT = inside(logprobs)
    mass_BT = jnp.abs(inside(batch.token_weights) * batch.advantages[:, None])
    measures_BTM = jnp.stack(
        [
            jnp.where(mask_BT, 1.0, 0.0),
            inside(entropies),
            mass_BT,
            mass_BT * (1.0 - jnp.exp(logprob_BT)),
            jnp.abs(logprob_BT - inside(batch.old_logprobs)),
        ],
        axis=2,
    )
    place_BT = PLACES * index_BT // jnp.maximum(length_B1, 1)
    cells = [jnp.where(mask_BT, place_BT, -1)]
    if classes is not None:
        class_BT = jnp.take(jnp.asarray(classes, jnp.int32), batch.tokens, axis=0)
        cells.append(jnp.where(mask_BT, PLACES + class_BT, -1))
    is_cell_BTK = jnp.zeros((*logprobs.shape, CELLS), bool)
    for cell_BT in cells:
        is_cell_BTK |= cell_BT[:, :, None] == jnp.arange(CELLS)[None, None]
    # Selected and added rather than multiplied: no [B, T, K, M] is ever in memory, and
    # no matrix unit rounds the sums.
    sums_BKM = jnp.where(
        is_cell_BTK[:, :, :, None], measures_BTM[:, :, None, :], 0.0
    ).sum(axis=1)
    band_B = jnp.where(batch.bands < 0, len(BANDS), batch.bands)
    is_band_QB = band_B[None, :] == jnp.arange(len(BANDS) + 1)[:, None]
    return jnp.where(is_band_QB[:, :, None, None], sums_BKM[None], 0.0).sum(axis=1)
