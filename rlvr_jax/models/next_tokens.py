"""Compares several versions of a pass by their predictions of the same tokens."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

if TYPE_CHECKING:
    from rlvr_jax.models.transformer import Transformer


def compare_next_tokens(
    policy: "Transformer",
    arms: tuple[Float[Array, "B T D"], ...],
    tokens: Int[Array, "B T"],
) -> tuple[Float[Array, "A B N"], Float[Array, "A B N"]]:
    """Returns each arm's cost of predicting tokens 1..T-1, and KL(first || arm).

    Both are in nats, from the policy's hidden states by arm; N = T - 1. The logits of
    only one position exist at a time.
    """

    def of_token(position: tuple[Array, Array]) -> tuple[Array, Array]:
        hidden_ABD, token_B = position
        logits_ABV = policy.logits(hidden_ABD)[:, :, : policy.num_real_tokens]
        logprob_ABV = jax.nn.log_softmax(logits_ABV.astype(jnp.float32))
        drawn_AB = jnp.take_along_axis(logprob_ABV, token_B[None, :, None], axis=2)
        first_1BV = logprob_ABV[:1]
        kl_AB = (jnp.exp(first_1BV) * (first_1BV - logprob_ABV)).sum(axis=2)
        return -drawn_AB[:, :, 0], kl_AB

    hidden_TABD = jnp.stack(arms).transpose(2, 0, 1, 3)[:-1]
    nats_NAB, kl_NAB = jax.lax.map(of_token, (hidden_TABD, tokens.T[1:]))
    return nats_NAB.transpose(1, 2, 0), kl_NAB.transpose(1, 2, 0)
