"""Token statistics: sums by difficulty band, and by decile or token class.

For each token, with w its weight in the loss, f its factor (RFGO's and that of
importance sampling, 1 without), A its completion's advantage and p = pi(token):

    tokens            1
    entropy           H of the distribution that drew it, as the update sees it
    advantage_mass    |A w f|, its part of the loss's scale
    logit_grad_proxy  |A w f| (1 - p), the size of the surrogate's gradient in the
                      token's own logit if the ratio is 1 and nothing is clipped: a
                      proxy, ours
    abs_log_ratio     |log pi - log pi_old|

Token t of a completion of n is in decile floor(10 t / n). Its class comes from its text
(`tokenizer.classes`). Every token counts once by decile and once by class.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rlvr_jax.types import BANDS, NUM_DECILES, TOKEN_CLASSES, TOKEN_STATS, Batch

NUM_CELLS = NUM_DECILES + len(TOKEN_CLASSES)


def zero_token_stats() -> Float[Array, " Q K M"]:
    """Returns `token_stats` for no tokens."""
    return jnp.zeros((len(BANDS) + 1, NUM_CELLS, len(TOKEN_STATS)), jnp.float32)


def token_stats(
    logprobs: Float[Array, " B T"],
    entropies: Float[Array, " B T"],
    batch: Batch,
    *,
    token_classes: Int[np.ndarray, " V"] | None,
) -> Float[Array, " Q K M"]:
    """Returns each band's sums of TOKEN_STATS, which add up over micro-batches.

    Rows Q are BANDS, then tokens without a band; rows K are the deciles of a
    completion, then TOKEN_CLASSES, all 0 without `token_classes`. The batch's
    `token_weights` are the factors f. No gradient flows, and padding is never read.
    """
    index_BT = jnp.arange(logprobs.shape[1], dtype=jnp.int32)[None]
    length_B1 = batch.lengths[:, None]
    mask_BT = batch.mask

    def inside(values: Array) -> Float[Array, " B T"]:
        return jnp.where(mask_BT, jax.lax.stop_gradient(values), 0.0)

    logprob_BT = inside(logprobs)
    mass_BT = jnp.abs(inside(batch.loss_weights) * batch.advantages[:, None])
    if batch.token_weights is not None:
        mass_BT *= inside(batch.token_weights)
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
    place_BT = NUM_DECILES * index_BT // jnp.maximum(length_B1, 1)
    cells = [jnp.where(mask_BT, place_BT, -1)]
    if token_classes is not None:
        class_BT = jnp.take(jnp.asarray(token_classes, jnp.int32), batch.tokens, axis=0)
        cells.append(jnp.where(mask_BT, NUM_DECILES + class_BT, -1))
    is_cell_BTK = jnp.zeros((*logprobs.shape, NUM_CELLS), bool)
    for cell_BT in cells:
        is_cell_BTK |= cell_BT[:, :, None] == jnp.arange(NUM_CELLS)[None, None]
    # Select and add instead of multiplying: no [B, T, K, M] array is ever in memory,
    # and no matrix unit rounds the sums.
    sums_BKM = jnp.where(
        is_cell_BTK[:, :, :, None], measures_BTM[:, :, None, :], 0.0
    ).sum(axis=1)
    band_B = jnp.where(batch.bands < 0, len(BANDS), batch.bands)
    is_band_QB = band_B[None, :] == jnp.arange(len(BANDS) + 1)[:, None]
    return jnp.where(is_band_QB[:, :, None, None], sums_BKM[None], 0.0).sum(axis=1)
