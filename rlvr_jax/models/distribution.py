"""The distribution that tokens are sampled from, the same for sampler and trainer.

Temperature, top-k, top-p and minimum length are applied here and nowhere else, so the
sampler's log-probabilities and the trainer's differ by the weights alone.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from rlvr_jax.config import SamplingConfig

# A logit whose probability is exactly 0; finite, so that 0 log 0 is 0 and not NaN.
_EXCLUDED_LOGIT = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling settings as arrays, so that changing them recompiles nothing."""

    temperature: Float[Array, ""]
    top_p: Float[Array, ""]
    top_k: Int[Array, ""]
    min_new_tokens: Int[Array, ""]

    @classmethod
    def from_config(cls, config: SamplingConfig) -> "SamplingParams":
        """Returns the settings of a sampling config."""
        return cls(
            temperature=jnp.float32(config.temperature),
            top_p=jnp.float32(config.top_p),
            top_k=jnp.int32(config.top_k),
            min_new_tokens=jnp.int32(config.min_new_tokens),
        )

    @classmethod
    def unmodified(cls) -> "SamplingParams":
        """Returns settings that leave logits as they are, as in supervised fitting."""
        return cls(
            temperature=jnp.float32(1.0),
            top_p=jnp.float32(1.0),
            top_k=jnp.int32(0),
            min_new_tokens=jnp.int32(0),
        )


def sampling_logits(
    logits: Float[Array, " C V"],
    index: Int[Array, " C"],
    sampling: SamplingParams,
    *,
    eos_ids: tuple[int, ...],
    num_real_tokens: int | None = None,
    sampled_tokens: Int[Array, " C"] | None = None,
) -> Float[Array, " C V"]:
    """Returns the logits of the distribution that token `index` is sampled from.

    Logits are divided by the temperature. Then tokens are excluded: ids from
    `num_real_tokens` on; end-of-sequence before `min_new_tokens`; all but the k best
    (top-k); all but the smallest set of best tokens whose share of the remaining
    probability reaches p (top-p; ties with the last one stay). Temperature 0 keeps only
    the best token, the first of several. An excluded token's logit is -1e30, so that
    its probability is exactly 0.

    `sampled_tokens` are the tokens that were sampled, if they are known; they are never
    truncated. Rounding, or an update, may move a token across the edge of the
    truncation between sampling and scoring, and log 0 would then make the loss
    infinite. (This rule is ours.)

    Example:
        >>> import jax.numpy as jnp
        >>> greedy = dataclasses.replace(
        ...     SamplingParams.unmodified(), temperature=jnp.float32(0)
        ... )
        >>> logits = sampling_logits(
        ...     jnp.array([[1.0, 3.0, 2.0]]), jnp.array([0]), greedy, eos_ids=()
        ... )
        >>> jax.nn.softmax(logits).tolist()
        [[0.0, 1.0, 0.0]]
    """
    greedy = sampling.temperature == 0
    scaled_CV = logits / jnp.where(greedy, 1.0, sampling.temperature)
    ends_V = is_eos(jnp.arange(logits.shape[-1], dtype=jnp.int32), eos_ids)
    early_C = index < sampling.min_new_tokens
    scaled_CV = jnp.where(early_C[:, None] & ends_V[None], _EXCLUDED_LOGIT, scaled_CV)
    if num_real_tokens is not None and num_real_tokens < logits.shape[-1]:
        unknown_V = jnp.arange(logits.shape[-1], dtype=jnp.int32) >= num_real_tokens
        scaled_CV = jnp.where(unknown_V[None], _EXCLUDED_LOGIT, scaled_CV)
    kept_CV = jax.lax.cond(
        greedy | (sampling.top_k > 0) | (sampling.top_p < 1),
        lambda: _truncation_mask(
            jax.lax.stop_gradient(scaled_CV), sampling, sampled_tokens
        ),
        lambda: jnp.ones(scaled_CV.shape, bool),
    )
    return jnp.where(kept_CV, scaled_CV, _EXCLUDED_LOGIT)


def _truncation_mask(
    logits_CV: jax.Array, sampling: SamplingParams, sampled_C: jax.Array | None
) -> Bool[Array, " C V"]:
    """Returns which tokens survive top-k and then top-p; greedy: which one is best."""
    V = logits_CV.shape[-1]
    token_1V = jnp.arange(V, dtype=jnp.int32)[None]
    sorted_CV = -jnp.sort(-logits_CV, axis=-1)
    in_k_1V = token_1V < jnp.where(sampling.top_k > 0, sampling.top_k, V)
    probs_CV = jax.nn.softmax(jnp.where(in_k_1V, sorted_CV, _EXCLUDED_LOGIT))
    before_CV = jnp.cumsum(probs_CV, axis=-1) - probs_CV
    in_p_CV = (before_CV < sampling.top_p) | (sampling.top_p == 1) | (token_1V == 0)
    last_C1 = jnp.min(
        jnp.where(in_k_1V & in_p_CV, sorted_CV, jnp.inf), axis=-1, keepdims=True
    )
    best_C = jnp.argmax(logits_CV, axis=-1).astype(jnp.int32)
    kept_CV = jnp.where(
        sampling.temperature == 0, token_1V == best_C[:, None], logits_CV >= last_C1
    )
    return kept_CV if sampled_C is None else kept_CV | (token_1V == sampled_C[:, None])


def is_eos(tokens: Int[Array, "..."], eos_ids: tuple[int, ...]) -> Bool[Array, "..."]:
    """Returns which tokens end a completion.

    Example:
        >>> is_eos(jnp.array([4, 2, 7]), (2, 3)).tolist()
        [False, True, False]
    """
    return jnp.isin(tokens, jnp.array(eos_ids, jnp.int32))


def sample_tokens(
    logits: Float[Array, " C V"], keys: Key[Array, " C"]
) -> tuple[Int[Array, " C"], Float[Array, " C"]]:
    """Returns one sampled token a row, and its log-probability.

    A row's token is a pure function of its own key and logits.

    Example:
        >>> keys = jax.random.split(jax.random.key(0), 1)
        >>> tokens, _ = sample_tokens(jnp.array([[0.0, 0.0, 50.0]]), keys)
        >>> tokens.tolist()
        [2]
    """
    return invert_cumulative(logits, jax.vmap(jax.random.uniform)(keys))


def invert_cumulative(
    logits: Float[Array, " C V"], uniform: Float[Array, " C"]
) -> tuple[Int[Array, " C"], Float[Array, " C"]]:
    """Returns one sampled token a row, and its log-probability.

    Inverts the cumulative distribution at one uniform number in [0, 1) a row (Gumbel
    noise would take V of them). A token of probability 0 is never sampled, although a
    parallel cumulative sum may not be monotone in floating point.

    Example:
        >>> tokens, _ = invert_cumulative(
        ...     jnp.array([[0.0, 0.0, 5.0]]), jnp.array([0.5])
        ... )
        >>> tokens.tolist()
        [2]
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
