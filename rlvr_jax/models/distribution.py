"""The distribution that tokens are drawn from, the same for sampler and scorer.

Temperature, truncation and minimum length enter here and nowhere else: the sampler's
log-probabilities and those of the update differ by the weights alone.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlvr_jax.config import SamplingConfig

_BARRED = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Traced sampling settings: changing them compiles nothing."""

    temperature: Float[Array, ""]
    top_p: Float[Array, ""]
    top_k: Int[Array, ""]
    min_new_tokens: Int[Array, ""]

    @classmethod
    def of(cls, config: SamplingConfig) -> "Sampling":
        """Returns the traced part of a sampling config."""
        return cls(
            temperature=jnp.float32(config.temperature),
            top_p=jnp.float32(config.top_p),
            top_k=jnp.int32(config.top_k),
            min_new_tokens=jnp.int32(config.min_new_tokens),
        )

    @classmethod
    def plain(cls) -> "Sampling":
        """Returns the model's own distribution: what supervised learning fits."""
        return cls(
            temperature=jnp.float32(1.0),
            top_p=jnp.float32(1.0),
            top_k=jnp.int32(0),
            min_new_tokens=jnp.int32(0),
        )


def sampling_logits(
    logits: Float[Array, " C V"],
    index: Int[Array, " C"],
    sampling: Sampling,
    *,
    eos_ids: tuple[int, ...],
) -> Float[Array, " C V"]:
    """Returns logits of the very distribution that completion token `index` has.

    End-of-sequence is barred before `min_new_tokens`; the rest is divided by the
    temperature (0 is greedy: the best token alone is kept); top-k keeps the k best and
    top-p the smallest set of best tokens whose probability reaches p, ties included.
    Tokens left out get -1e30, whose probability is exactly 0.
    """
    V = logits.shape[-1]
    ends_V = jnp.zeros(V, bool).at[jnp.array(eos_ids, jnp.int32)].set(True)
    early_C = index < sampling.min_new_tokens
    logits = jnp.where(early_C[:, None] & ends_V[None], _BARRED, logits)
    greedy = sampling.temperature == 0
    scaled_CV = logits / jnp.where(greedy, 1.0, sampling.temperature)
    top_k = jnp.where(greedy, 1, sampling.top_k)
    truncated = (top_k > 0) | (sampling.top_p < 1)
    floor_C = jax.lax.cond(
        truncated,
        lambda: _smallest_kept(jax.lax.stop_gradient(scaled_CV), top_k, sampling.top_p),
        lambda: jnp.full(scaled_CV.shape[0], -jnp.inf),
    )
    return jnp.where(scaled_CV >= floor_C[:, None], scaled_CV, _BARRED)


def _smallest_kept(
    logits_CV: jax.Array, top_k: jax.Array, top_p: jax.Array
) -> jax.Array:
    """Returns the smallest logit that top-k, then top-p, keep."""
    V = logits_CV.shape[-1]
    sorted_CV = -jnp.sort(-logits_CV, axis=-1)
    rank_V = jnp.arange(V, dtype=jnp.int32)
    in_k_V = rank_V < jnp.where(top_k > 0, top_k, V)
    sorted_CV = jnp.where(in_k_V[None], sorted_CV, _BARRED)
    probs_CV = jax.nn.softmax(sorted_CV)
    before_CV = jnp.cumsum(probs_CV, axis=-1) - probs_CV
    kept_CV = in_k_V[None] & ((before_CV < top_p) | (rank_V == 0)[None])
    return jnp.min(jnp.where(kept_CV, sorted_CV, jnp.inf), axis=-1)


def draw(
    logits: Float[Array, " C V"], uniform: Float[Array, " C"]
) -> tuple[Int[Array, " C"], Float[Array, " C"]]:
    """Returns tokens drawn by inverting the cumulative distribution, and their logprobs.

    One uniform number in [0, 1) serves a row, where Gumbel noise would need V. A token
    of probability 0 is never drawn.
    """
    logprobs_CV = jax.nn.log_softmax(logits)
    cumulative_CV = jnp.cumsum(jnp.exp(logprobs_CV), axis=-1)
    target_C = uniform * cumulative_CV[:, -1]
    below_CV = cumulative_CV <= target_C[:, None]
    last_C = jnp.argmax(cumulative_CV, axis=-1)  # first index at the full sum
    tokens_C = jnp.minimum(below_CV.sum(axis=-1), last_C).astype(jnp.int32)
    return tokens_C, jnp.take_along_axis(logprobs_CV, tokens_C[:, None], axis=-1)[:, 0]
