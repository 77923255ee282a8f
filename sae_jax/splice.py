"""What a model loses when it reads the reconstruction in place of its activations.

    recovered = (loss_ablated - loss_spliced) / (loss_ablated - loss_clean)

1 where the reconstruction does as well as the activations, 0 where it does no better
than zeros. The loss is the cross-entropy of the next token; for KL(clean || changed),
whose clean value is 0, the formula is 1 - KL_spliced / KL_ablated.
"""

import dataclasses
from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sae_jax.sae import TSAE

Edit = Callable[[Float[Array, "B T D"]], Float[Array, "B T D"]]
# The model's logits for these tokens, with `edit` applied to the activations where the
# dictionary was trained: the hook.
Forward = Callable[[Int[Array, "B T"], Bool[Array, "B T"], Edit], Float[Array, "B T V"]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpliceSums:
    """Sums over predicted tokens, in nats. They add up over batches."""

    tokens: Int[Array, ""]
    ce: Float[Array, ""]
    ce_spliced: Float[Array, ""]
    ce_ablated: Float[Array, ""]
    kl_spliced: Float[Array, ""]
    kl_ablated: Float[Array, ""]

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        return jax.tree.map(lambda a, b: a + b, self, other)

    def on_host(self) -> Self:
        """Returns the sums in float64, so that a million batches lose no digit."""
        return jax.tree.map(lambda a: np.asarray(a, np.float64), jax.device_get(self))

    def report(self) -> dict[str, float]:
        """Returns the means, and the shares of CE and KL that are recovered."""
        tokens = max(int(self.tokens), 1)
        means = {
            name: float(value) / tokens
            for name, value in vars(self).items()
            if name != "tokens"
        }
        lost = means["ce_ablated"] - means["ce"]
        spliced = means["ce_ablated"] - means["ce_spliced"]
        return means | {
            "tokens": int(self.tokens),
            "ce_recovered": spliced / lost if lost else float("nan"),
            "kl_recovered": 1.0 - means["kl_spliced"] / means["kl_ablated"]
            if means["kl_ablated"]
            else float("nan"),
        }


def splice_sums(
    forward: Forward,
    tsae: TSAE,
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    *,
    spliced: Bool[Array, "B T"] | None = None,
) -> SpliceSums:
    """Returns the sums of one batch: three forward passes.

    Position t predicts token t + 1 where both are true tokens (`mask`). `spliced` says
    where activations are replaced, all true tokens by default: leave out those, such as
    BOS, that the dictionary was not trained on.
    """
    where = (mask if spliced is None else spliced)[:, :, None]

    def reconstructed(x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        xhat = tsae.decode(tsae.encode(x)).astype(x.dtype)
        return jnp.where(where, xhat, x)

    def ablated(x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return jnp.where(where, jnp.zeros_like(x), x)

    predicted = mask[:, 1:] & mask[:, :-1]
    clean, spliced_, ablated_ = (
        jax.nn.log_softmax(forward(tokens, mask, edit).astype(jnp.float32))[:, :-1]
        for edit in (lambda x: x, reconstructed, ablated)
    )

    def ce(logprobs: Float[Array, "B T V"]) -> Float[Array, ""]:
        of_next = jnp.take_along_axis(logprobs, tokens[:, 1:, None], axis=-1)[..., 0]
        return -jnp.where(predicted, of_next, 0.0).sum()

    def kl(logprobs: Float[Array, "B T V"]) -> Float[Array, ""]:
        divergence = (jnp.exp(clean) * (clean - logprobs)).sum(-1)
        return jnp.where(predicted, divergence, 0.0).sum()

    return SpliceSums(
        tokens=predicted.sum(),
        ce=ce(clean),
        ce_spliced=ce(spliced_),
        ce_ablated=ce(ablated_),
        kl_spliced=kl(spliced_),
        kl_ablated=kl(ablated_),
    )
