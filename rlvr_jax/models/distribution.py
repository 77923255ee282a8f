"""The distribution that tokens are sampled from, the same for sampler and trainer.

Temperature, top-k, top-p and minimum length are applied only here, so with the same
weights the sampler and the trainer use the same distribution.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from rlvr_jax.config import SamplingConfig

# The logit of an excluded token. It is finite, so 0 log 0 is 0 instead of NaN.
_EXCLUDED_LOGIT = -1e30
# Names the part that runs only if tokens are cut off, for `plan.program_costs`.
TRUNCATION_SCOPE = "truncation"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling settings as arrays: changing them recompiles nothing."""

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
        """Returns settings that do not change logits, as in supervised fitting."""
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
    the best token, or the first of several. An excluded token's logit is -1e30, so its
    probability is exactly 0.

    `sampled_tokens` are the tokens that were sampled, if known; they are never
    truncated. Between sampling and scoring, rounding or an update may move a token
    across the truncation's edge, and log 0 would then make the loss infinite. (This
    rule is ours.)

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

    def truncated() -> jax.Array:
        with jax.named_scope(TRUNCATION_SCOPE):
            return _truncation_mask(
                jax.lax.stop_gradient(scaled_CV), sampling, sampled_tokens
            )

    kept_CV = jax.lax.cond(
        greedy | (sampling.top_k > 0) | (sampling.top_p < 1),
        truncated,
        lambda: jnp.ones(scaled_CV.shape, bool),
    )
    return jnp.where(kept_CV, scaled_CV, _EXCLUDED_LOGIT)


def _truncation_mask(
    logits_CV: jax.Array, sampling: SamplingParams, sampled_C: jax.Array | None
) -> Bool[Array, " C V"]:
    """Returns which tokens survive top-k and then top-p; if greedy, only the best."""
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
    """Returns one sampled token per row, and its log-probability.

    Gumbel-max (arXiv 1411.0030), first over blocks of W tokens, then in the block:

        block = argmax_n log(sum_{v in n} exp(x_v)) + g_n
        token = argmax_{v in block} x_v + g_v

    A block's sum is its probability up to a factor, so both choices are exact. A row
    needs V/W + W random numbers, about 2 sqrt(V); Gumbel-max over all tokens needs V.
    Inverting the cumulative sum would need only one, but JAX's float32 uniform has 2^23
    values, so most rarer tokens would never be drawn. For the same reason the Gumbel
    numbers use mode "high", which has 46 random bits. An excluded token is never drawn.
    A row's token is a pure function of its key and logits.

    Example:
        >>> keys = jax.random.split(jax.random.key(0), 1)
        >>> tokens, _ = sample_tokens(jnp.array([[0.0, -1e30, 50.0]]), keys)
        >>> tokens.tolist()
        [2]
    """
    C, V = logits.shape
    W = 1 << ((V - 1).bit_length() // 2)
    N = -(-V // W)
    gumbel_CX = jax.vmap(lambda key: jax.random.gumbel(key, (N + W,), mode="high"))(
        keys
    )
    shifted_CV = logits - logits.max(axis=-1, keepdims=True)
    weights_CX = jnp.pad(jnp.exp(shifted_CV), ((0, 0), (0, N * W - V)))
    block_logits_CN = jnp.log(weights_CX.reshape(C, N, W).sum(axis=-1))
    block_C = jnp.argmax(block_logits_CN + gumbel_CX[:, :N], axis=-1).astype(jnp.int32)
    token_CW = block_C[:, None] * W + jnp.arange(W, dtype=jnp.int32)[None]
    logits_CW = jnp.take_along_axis(shifted_CV, jnp.minimum(token_CW, V - 1), axis=-1)
    logits_CW = jnp.where(token_CW < V, logits_CW, _EXCLUDED_LOGIT)
    best_C1 = jnp.argmax(logits_CW + gumbel_CX[:, N:], axis=-1, keepdims=True)
    drawn_C = jnp.take_along_axis(logits_CW, best_C1, axis=-1)[:, 0]
    tokens_C = jnp.take_along_axis(token_CW, best_C1, axis=-1)[:, 0]
    return tokens_C, drawn_C - jax.nn.logsumexp(block_logits_CN, axis=-1)
