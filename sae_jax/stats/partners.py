"""Whether a latent and its partner in another autoencoder behave alike on a text.

Partners are matched by decoder rows (`quality.match_decoders`), which are the
directions that latents write. The correlation of their activations over tokens shows
whether they write them at the same tokens. If a latent's partner in a refit writes the
same direction at other tokens, the two are not the same latent.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sae_jax.data.corpus import Corpus
from sae_jax.sae import TSAE
from sae_jax.stats.quality import DecoderMatch, match_decoders


class PartnerCorrelation(NamedTuple):
    """For each latent, its partner and the Pearson correlation of the two over tokens.

    The correlation is 0 if either never varies.
    """

    match: DecoderMatch
    correlation: Float[np.ndarray, " Z"]


def correlate_partners(tsae: TSAE, other: TSAE, corpus: Corpus) -> PartnerCorrelation:
    """Returns each latent's partner in `other`, and their correlation on a corpus.

    It uses all tokens that count, and sums blocks in float64.
    """
    match = match_decoders(tsae.decoder, other.decoder)
    partner_Z = jnp.asarray(match.nearest)
    total_5Z, tokens = np.zeros((5, tsae.latents)), 0
    for block in corpus.blocks():
        sums_5Z = _partner_sums(tsae, other, partner_Z, block.x, block.mask)
        total_5Z += np.asarray(sums_5Z, np.float64)
        tokens += int(block.mask.sum())
    f_Z, g_Z, ff_Z, gg_Z, fg_Z = total_5Z / max(tokens, 1)
    variance_Z = np.maximum(ff_Z - f_Z**2, 0) * np.maximum(gg_Z - g_Z**2, 0)
    # Rounding in float32 leaves this much variance in a latent that never varies.
    varies_Z = variance_Z > 1e-10 * ff_Z * gg_Z
    scale_Z = np.sqrt(np.where(varies_Z, variance_Z, 1.0))
    return PartnerCorrelation(
        match, np.where(varies_Z, (fg_Z - f_Z * g_Z) / scale_Z, 0.0)
    )


@jax.jit
def _partner_sums(
    tsae: TSAE,
    other: TSAE,
    partner: Int[Array, " Z"],
    x: Float[Array, "S T D"],
    mask: Bool[Array, "S T"],
) -> Float[Array, "5 Z"]:
    """Returns the sums over tokens of f, g, f^2, g^2 and f g; g are the partners."""
    counted_ST1 = mask[:, :, None]
    x = jnp.where(counted_ST1, x, 0.0)
    f, g = (
        jnp.where(counted_ST1, each, 0.0)
        for each in (tsae.encode(x), other.encode(x)[:, :, partner])
    )
    return jnp.stack([a.sum((0, 1)) for a in (f, g, f**2, g**2, f * g)])
