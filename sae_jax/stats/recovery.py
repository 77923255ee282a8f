"""Whether a dictionary contains known directions, such as planted ones or probes."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sae_jax.stats.quality import match_decoders

_FOUND = 0.9  # cosine at which a direction counts as found
# Added to the seed. Known directions are often the first draw of default_rng(0), and
# the random directions must differ from them.
_RANDOM = 1


def recovery_report(
    decoder: Float[Array, "Z D"], directions: Float[np.ndarray, "F D"], *, seed: int = 0
) -> dict[str, Any]:
    """Returns how well latents match each direction, compared with random directions.

    `cosine` and `latent` describe the nearest latent of each direction. `found` is the
    share of directions with a cosine of at least 0.9 to a latent whose nearest
    direction they are in turn, so that one latent finds only one. `random` has the mean
    and the largest cosine of equally many random directions, which shows the matches
    that arise by chance.

    >>> report = recovery_report(np.eye(3), np.eye(3)[:2])
    >>> report["found"], report["latent"]
    (1.0, [0, 1])
    """
    match = match_decoders(jnp.asarray(directions), decoder)
    drawn = np.random.default_rng((seed, _RANDOM)).standard_normal(directions.shape)
    chance = match_decoders(jnp.asarray(drawn), decoder).cosine
    return {
        "directions": len(directions),
        "found": float((match.mutual & (match.cosine >= _FOUND)).mean()),
        "mean_cosine": float(match.cosine.mean()),
        "random": {"mean_cosine": float(chance.mean()), "max": float(chance.max())},
        "cosine": match.cosine.astype(float).round(4).tolist(),
        "latent": match.nearest.tolist(),
    }
