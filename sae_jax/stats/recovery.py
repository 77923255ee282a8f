"""Whether a dictionary holds directions that are known: planted ones, or probes."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sae_jax.stats.quality import match_decoders

_FOUND = 0.9  # cosine at which a direction counts as found
# Added to the seed. Known directions are often the first draw of default_rng(0), and
# the random directions must not be the same numbers.
_RANDOM = 1


def recovery_report(
    decoder: Float[Array, "Z D"], directions: Float[np.ndarray, "F D"], *, seed: int = 0
) -> dict[str, Any]:
    """Returns how well each direction is a latent's, beside random directions.

    `cosine` and `latent` are of the latent that points most nearly as each direction
    does; `found` is the share of directions with a cosine of 0.9 or more to a latent
    whose nearest direction they are in turn, so that one latent finds one. `random` has
    the mean and the greatest cosine of as many random directions: what so many latents
    come to by chance.

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
