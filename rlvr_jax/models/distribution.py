"""The distribution that tokens are drawn from, the same for sampler and scorer.

Temperature, truncation and minimum length enter here and nowhere else: the sampler's
log-probabilities and those of the update differ by the weights alone.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import SamplingConfig

# A logit whose probability is exactly 0; finite, so that 0 log 0 is 0 and not NaN.
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
    known_ids: int | None = None,
    drawn: Int[Array, " C"] | None = None,
) -> Float[Array, " C V"]:
    """Returns logits of the very distribution that completion token `index` has.

    Logits are divided by the temperature; ids from `known_ids` on are barred, and
    end-of-sequence is before `min_new_tokens`; top-k keeps the k best and top-p the
    smallest set of best tokens whose probability among those reaches p, ties with the
    last one included. Temperature 0 is greedy: it keeps the best token alone, the first
    of several. Tokens left out get -1e30, whose probability is exactly 0.

    `drawn` is the token that the sampler drew, where the caller knows: it counts as
    kept. Rounding, or an update, may move a token across the edge of the truncation
    between sampling and scoring; log 0 would then take the loss with it. The rule is
    ours.
    """
    greedy = sampling.temperature == 0
    scaled_CV = logits / jnp.where(greedy, 1.0, sampling.temperature)
    ends_V = is_end(jnp.arange(logits.shape[-1], dtype=jnp.int32), eos_ids)
    early_C = index < sampling.min_new_tokens
    scaled_CV = jnp.where(early_C[:, None] & ends_V[None], _BARRED, scaled_CV)
    if known_ids is not None and known_ids < logits.shape[-1]:
        unknown_V = jnp.arange(logits.shape[-1], dtype=jnp.int32) >= known_ids
        scaled_CV = jnp.where(unknown_V[None], _BARRED, scaled_CV)
    kept_CV = jax.lax.cond(
        greedy | (sampling.top_k > 0) | (sampling.top_p < 1),
        lambda: _kept(jax.lax.stop_gradient(scaled_CV), sampling, drawn),
        lambda: jnp.ones(scaled_CV.shape, bool),
    )
    return jnp.where(kept_CV, scaled_CV, _BARRED)


def _kept(
    logits_CV: jax.Array, sampling: Sampling, drawn_C: jax.Array | None
) -> Bool[Array, " C V"]:
    """Returns which tokens top-k, then top-p, keep; greedy, which is the best."""
    V = logits_CV.shape[-1]
    token_1V = jnp.arange(V, dtype=jnp.int32)[None]
    sorted_CV = -jnp.sort(-logits_CV, axis=-1)
    in_k_1V = token_1V < jnp.where(sampling.top_k > 0, sampling.top_k, V)
    probs_CV = jax.nn.softmax(jnp.where(in_k_1V, sorted_CV, _BARRED))
    before_CV = jnp.cumsum(probs_CV, axis=-1) - probs_CV
    in_p_CV = (before_CV < sampling.top_p) | (sampling.top_p == 1) | (token_1V == 0)
    last_C1 = jnp.min(
        jnp.where(in_k_1V & in_p_CV, sorted_CV, jnp.inf), axis=-1, keepdims=True
    )
    best_C = jnp.argmax(logits_CV, axis=-1).astype(jnp.int32)
    kept_CV = jnp.where(
        sampling.temperature == 0, token_1V == best_C[:, None], logits_CV >= last_C1
    )
    return kept_CV if drawn_C is None else kept_CV | (token_1V == drawn_C[:, None])


def is_end(tokens: Int[Array, "..."], eos_ids: tuple[int, ...]) -> Bool[Array, "..."]:
    """Returns where a token ends its completion."""
    return jnp.isin(tokens, jnp.array(eos_ids, jnp.int32))


def draw(
    logits: Float[Array, " C V"], uniform: Float[Array, " C"]
) -> tuple[Int[Array, " C"], Float[Array, " C"]]:
    """Returns tokens drawn by inverting the distribution, and their logprobs.

    One uniform number in [0, 1) serves a row, where Gumbel noise would need V. A token
    of probability 0 is never drawn: a parallel cumulative sum need not be monotone in
    floating point, so a step in it is not taken for a probability.
    """
    V = logits.shape[-1]
    token_1V = jnp.arange(V, dtype=jnp.int32)[None]
    logprobs_CV = jax.nn.log_softmax(logits)
    probs_CV = jnp.exp(logprobs_CV)
    cumulative_CV = jnp.cumsum(probs_CV, axis=-1)
    target_C1 = uniform[:, None] * cumulative_CV[:, -1:]
    possible_CV = probs_CV > 0
    reached_CV = possible_CV & (cumulative_CV > target_C1)
    first_C = jnp.where(reached_CV, token_1V, V).min(axis=-1)
    last_C = jnp.where(possible_CV, token_1V, 0).max(axis=-1)
    tokens_C = jnp.minimum(first_C, last_C)
    return tokens_C, jnp.take_along_axis(logprobs_CV, tokens_C[:, None], axis=-1)[:, 0]
