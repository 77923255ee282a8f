"""A corpus with known answers: latent z is coordinate z of the activations."""

import jax.numpy as jnp
import numpy as np

from sae_jax.data.shards import ShardWriter
from sae_jax.sae import TSAE

WIDTH = 4
HOOK = "blocks.2.hook_resid_post"


def copying(width: int = WIDTH) -> TSAE:
    """A dictionary with F = x where x is above 1/2, else 0."""
    return TSAE(
        encoder=jnp.eye(width),
        encoder_bias=jnp.zeros(width),
        decoder=jnp.eye(width),
        decoder_bias=jnp.zeros(width),
        threshold=jnp.full(width, 0.5),
        group_sizes=(1, width - 1),
    )


def write_corpus(path, *, documents: int = 8, factors=True) -> None:
    """Writes documents of 6 tokens; the first is special and is 9 everywhere.

    Factor `step` is half the token's position in its document: 0, 0, 1, 1, 2, 2.
    Coordinate `step` is 2 and the next one is 1. The last one is 3 in `correct`
    documents, whose halved number is odd: 0 0 1 1 0 0 1 1. `prompt` is the number
    halved twice.
    """
    names = ("step", "correct", "prompt") if factors else ()
    with ShardWriter(
        path,
        width=WIDTH,
        layer=2,
        hook=HOOK,
        model="toy",
        roles=("prompt", "response"),
        factors=names,
        dtype="float32",
    ) as out:
        for number in range(documents):
            step = np.arange(6) // 2
            correct = number // 2 % 2
            x = np.zeros((6, WIDTH), np.float32)
            x[np.arange(6), step] = 2.0
            x[np.arange(6), step + 1] += 1.0
            x[:, 3] += 3.0 * correct
            x[0] = 9.0
            labels = {
                "step": step,
                "correct": np.full(6, correct),
                "prompt": np.full(6, number // 4),
            }
            out.add(
                x,
                token_ids=10 * number + np.arange(6),
                roles=np.array([0, 1, 1, 1, 1, 1]),
                special=np.arange(6) == 0,
                factors={name: labels[name] for name in names},
            )
