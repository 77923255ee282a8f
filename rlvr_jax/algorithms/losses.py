"""The policy loss: one sum over tokens with named, interchangeable parts.

    loss = sum_it w_it * (-gain_it + kl_coef * kl_it - entropy_coef * H_it)

`aggregation_weights` computes w from lengths alone, on the whole minibatch before it is
split. `policy_loss` is the sum, so micro-batches add up to the same loss and gradient
however they are split. docs/method/algorithm.md maps each published algorithm to its
parts.

Positions at or beyond a completion's length are replaced before any arithmetic, so
their values, NaN included, reach neither the loss nor the gradient.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.algorithms.arrays import ArrayLike, as_array, choose
from rlvr_jax.algorithms.objective import PolicyObjective
from rlvr_jax.algorithms.surrogates import external_gain, kl_estimate
from rlvr_jax.algorithms.token_stats import zero_token_stats
from rlvr_jax.types import BANDS, LossAux, PolicyTokens

CLIPPED = ("clip_low", "clip_high")  # diagnostics that count clipped tokens
_ADVANTAGES_HINT = (
    ", one number a completion; advantages.reshape(-1) makes it of [P, G]"
)


def aggregation_weights(
    lengths: ArrayLike,
    *,
    width: int,
    aggregation: str,
    max_length: int,
    loss_mask: ArrayLike | None = None,
) -> Float[Array, " B T"]:
    """Returns w, T = `width`, such that sum(w * x) aggregates x over true tokens.

    `lengths` are [B], `loss_mask` is [B, T].

        token_mean           1 / sum_j |o_j|       DAPO, CISPO
        seq_mean_token_mean  1 / (B |o_i|)         GRPO, GSPO, RLOO
        seq_mean_token_sum   1 / B
        seq_mean_token_sum_norm  1 / (B * max_length)  Dr. GRPO

    w is 0 at and beyond each length. B counts completions with at least one token: rows
    of length 0 are filler that brings a batch to size, and weigh nothing anywhere.

    Tokens outside `loss_mask` weigh 0. Means are then over the tokens inside it: |o_i|
    counts them, and B, under seq_mean_token_mean, counts the completions with any. The
    divisors of the other two aggregations do not change.

    Example:
        >>> aggregation_weights(
        ...     [1, 3], width=3, aggregation="token_mean", max_length=4
        ... ).tolist()
        [[0.25, 0.0, 0.0], [0.25, 0.25, 0.25]]
    """
    length_B = as_array("lengths", lengths, "B", dtype=jnp.int32)
    rows = (length_B > 0).sum()
    mask_BT = _token_mask(length_B, width)
    if loss_mask is not None:
        sizes = {"B": len(length_B), "T": width}
        mask_BT &= as_array("loss_mask", loss_mask, "B T", dtype=bool, sizes=sizes)
        length_B = mask_BT.sum(axis=1)
        if aggregation == "seq_mean_token_mean":
            rows = (length_B > 0).sum()
    divisors = {
        "token_mean": length_B.sum(),
        "seq_mean_token_mean": rows * length_B[:, None],
        "seq_mean_token_sum": rows,
        "seq_mean_token_sum_norm": rows * max_length,
    }
    divisor = choose("aggregation", aggregation, divisors)
    inverse = 1.0 / jnp.maximum(divisor, 1).astype(jnp.float32)
    return jnp.where(mask_BT, inverse, 0.0)


def policy_loss(
    logprobs: ArrayLike,
    old_logprobs: ArrayLike,
    advantages: ArrayLike,
    loss_weights: ArrayLike,
    *,
    lengths: ArrayLike,
    config: PolicyObjective,
    ref_logprobs: ArrayLike | None = None,
    entropies: ArrayLike | None = None,
    bands: ArrayLike | None = None,
    token_weights: ArrayLike | None = None,
    policy_mask: ArrayLike | None = None,
) -> tuple[Float[Array, ""], LossAux]:
    """Returns sum(w * (-c gain + kl_coef * kl - entropy_coef * H)), and diagnostics.

    Advantages, lengths and bands are [B], the others [B, T]; nothing broadcasts. The
    config defines the gain: `LossConfig` has the published ones, and a custom one
    follows `PolicyObjective`.

    `old_logprobs` and `ref_logprobs` are constants in the gradient. `ref_logprobs` is
    read only if `kl_coef` is positive; `entropies`, if given, are reported even if
    `entropy_coef` is 0. `bands` only splits the sums in `by_band`. `token_weights` is
    c, 1 if not given. Tokens outside `policy_mask`, such as an environment's, count as
    padding: they enter no ratio, sum or mean.

    Deviation from the sources: a log-ratio is clipped to at most 20 in size, so a
    policy that diverged gives large finite numbers instead of NaN. Raises ValueError if
    a term with a coefficient lacks its array, and on an array of another shape.

    Example:
        >>> from rlvr_jax.algorithms.published import LossConfig
        >>> loss, aux = policy_loss(
        ...     logprobs=[[-1.0, -2.0]],
        ...     old_logprobs=[[-1.0, -2.0]],
        ...     advantages=[1.0],
        ...     loss_weights=[[0.5, 0.5]],
        ...     lengths=[2],
        ...     config=LossConfig(),
        ... )
        >>> float(loss), float(aux.scalars["ratio"] / aux.tokens)
        (-1.0, 1.0)
    """
    _require_arrays(config, ref_logprobs=ref_logprobs, entropies=entropies)
    tokens = _policy_tokens(
        logprobs, old_logprobs, advantages, lengths, entropies, policy_mask
    )
    gain_BT, diagnostics = _gain(tokens, config=config)
    if token_weights is not None:
        gain_BT *= _at_tokens("token_weights", token_weights, tokens.mask)
    kl_BT = _kl_from_reference(tokens, ref_logprobs, config=config)
    loss_BT = -gain_BT + config.kl_coef * kl_BT - config.entropy_coef * tokens.entropies
    loss = (_at_tokens("loss_weights", loss_weights, tokens.mask) * loss_BT).sum()
    return loss, _loss_aux(loss, tokens, diagnostics, kl_BT=kl_BT, bands=bands)


def external_loss(
    logprobs: ArrayLike,
    old_logprobs: ArrayLike,
    advantages: ArrayLike,
    loss_weights: ArrayLike,
    *,
    lengths: ArrayLike,
) -> tuple[Float[Array, ""], Float[Array, " 2"]]:
    """Returns -sum(w * gain) over external traces, and the sums of log pi and tokens.

    Shapes are those in `policy_loss`; `lengths` are 0 in rows that hold the policy's
    own completions. There is no KL or entropy term, because log-ratios estimate a KL
    only on tokens that the policy sampled itself (ours).
    """
    tokens = _policy_tokens(logprobs, old_logprobs, advantages, lengths, None)
    gain_BT = _mask_padding(external_gain(tokens), tokens.mask)
    weight_BT = _at_tokens("loss_weights", loss_weights, tokens.mask)
    count = tokens.mask.sum().astype(jnp.float32)
    sums = jnp.stack([jax.lax.stop_gradient(tokens.logprobs.sum()), count])
    return -(weight_BT * gain_BT).sum(), sums


def _policy_tokens(
    logprobs: ArrayLike,
    old_logprobs: ArrayLike,
    advantages: ArrayLike,
    lengths: ArrayLike,
    entropies: ArrayLike | None,
    policy_mask: ArrayLike | None = None,
) -> PolicyTokens:
    """Returns the inputs of the gain, 0 in padding. Raises ValueError."""
    own_BT = as_array("logprobs", logprobs, "B T")
    sizes = dict(zip("BT", own_BT.shape, strict=True))
    length_B = as_array("lengths", lengths, "B", dtype=jnp.int32, sizes=sizes)
    mask_BT = _token_mask(length_B, sizes["T"])
    if policy_mask is not None:
        mask_BT &= as_array("policy_mask", policy_mask, "B T", dtype=bool, sizes=sizes)
        length_B = mask_BT.sum(axis=1)
    logprob_BT = _mask_padding(own_BT, mask_BT)
    old_BT = _at_tokens("old_logprobs", old_logprobs, mask_BT)
    advantage_B = as_array(
        "advantages", advantages, "B", sizes=sizes, hint=_ADVANTAGES_HINT
    )
    entropy_BT = jnp.zeros_like(logprob_BT)
    if entropies is not None:
        entropy_BT = _at_tokens("entropies", entropies, mask_BT)
    return PolicyTokens(
        logprobs=logprob_BT,
        old_logprobs=jax.lax.stop_gradient(old_BT),
        advantages=_mask_padding(advantage_B[:, None], mask_BT),
        entropies=entropy_BT,
        mask=mask_BT,
        lengths=length_B,
    )


def _gain(
    tokens: PolicyTokens, *, config: PolicyObjective
) -> tuple[Float[Array, " B T"], dict[str, Array]]:
    """Returns each token's gain and the diagnostics, both 0 in padding."""
    gain_BT, diagnostics = config.gain(tokens)
    return _mask_padding(gain_BT, tokens.mask), {
        name: _mask_padding(jnp.asarray(value, jnp.float32), tokens.mask)
        for name, value in diagnostics.items()
    }


def _kl_from_reference(
    tokens: PolicyTokens, ref_logprobs: ArrayLike | None, *, config: PolicyObjective
) -> Float[Array, " B T"]:
    """Returns each token's estimate of the KL, or 0 if the KL has no coefficient."""
    if config.kl_coef == 0 or ref_logprobs is None:
        return jnp.zeros_like(tokens.logprobs)
    ref_BT = _at_tokens("ref_logprobs", ref_logprobs, tokens.mask)
    log_ref_BT = jax.lax.stop_gradient(ref_BT) - tokens.logprobs
    return kl_estimate(log_ref_BT, estimator=config.kl_estimator)


def _loss_aux(
    loss: Float[Array, ""],
    tokens: PolicyTokens,
    diagnostics: dict[str, Array],
    *,
    kl_BT: Float[Array, " B T"],
    bands: ArrayLike | None,
) -> LossAux:
    """Returns the sums over true tokens that are reported with a loss."""
    if bands is not None:
        sizes = {"B": len(tokens.lengths)}
        bands = as_array("bands", bands, "B", dtype=jnp.int32, sizes=sizes)
    clipped_BT = sum(
        (diagnostics[name] for name in CLIPPED if name in diagnostics),
        jnp.zeros_like(kl_BT),
    )
    mismatch_BT = jnp.abs(tokens.logprobs - tokens.old_logprobs)
    scalars_BT = diagnostics | {"kl": kl_BT, "entropy": tokens.entropies}
    return LossAux(
        loss=loss,
        tokens=tokens.mask.sum().astype(jnp.float32),
        scalars={name: value_BT.sum() for name, value_BT in scalars_BT.items()},
        logprob_mismatch=mismatch_BT.sum(),
        logprob_mismatch_max=mismatch_BT.max(),
        by_band=_by_band(bands, tokens.mask, tokens.entropies, kl_BT, clipped_BT),
        token_stats=zero_token_stats(),
    )


def _require_arrays(
    config: PolicyObjective,
    *,
    ref_logprobs: ArrayLike | None,
    entropies: ArrayLike | None,
) -> None:
    """Raises ValueError if a term with a coefficient lacks its array."""
    if config.kl_coef > 0 and ref_logprobs is None:
        raise ValueError(f"loss.kl_coef={config.kl_coef} needs ref_logprobs")
    if config.entropy_coef != 0 and entropies is None:
        raise ValueError(f"loss.entropy_coef={config.entropy_coef} needs entropies")


def zero_band_sums() -> Float[Array, " Q M"]:
    """Returns `LossAux.by_band` for no tokens."""
    return jnp.zeros((len(BANDS), 4), jnp.float32)


def _by_band(bands: Int[Array, " B"] | None, *values: Array) -> Float[Array, " Q M"]:
    """Returns each band's sums of `values`, which are 0 (false) in padding."""
    if bands is None:
        return zero_band_sums()
    columns = [value.sum(axis=1).astype(jnp.float32) for value in values]
    sums_BM = jax.lax.stop_gradient(jnp.stack(columns, axis=1))
    is_band_QB = bands[None, :] == jnp.arange(len(BANDS))[:, None]
    return jnp.where(is_band_QB[:, :, None], sums_BM[None], 0.0).sum(axis=1)


def _at_tokens(
    name: str, values: ArrayLike, mask: Bool[Array, " B T"]
) -> Float[Array, " B T"]:
    """Returns the array `name` at true tokens, 0 elsewhere. Raises ValueError."""
    sizes = dict(zip("BT", mask.shape, strict=True))
    return _mask_padding(as_array(name, values, "B T", sizes=sizes), mask)


def _mask_padding(values: Array, mask: Bool[Array, " B T"]) -> Float[Array, " B T"]:
    """Returns values at true tokens and 0 elsewhere; a [B, 1] column is repeated."""
    return jnp.where(mask, values, 0.0)


def _token_mask(lengths: Int[Array, " B"], width: int) -> Bool[Array, " B T"]:
    """Returns which positions hold a completion's own tokens."""
    return jnp.arange(width)[None, :] < lengths[:, None]
