"""Reasoning-feature-guided optimization: token weights and proxy advantages.

The idea is from https://arxiv.org/abs/2605.28388: token weights from the movement of
reasoning features, and a feature-based proxy reward only for zero-variance groups. Its
equations are not public, so everything here is our reading:

    activation a_t = sum_k s_k f_k(h_t) / sigma_k
    score      temporal_diff  m_t = sum_k |s_k| |f_k(h_t) - f_k(h_{t-1})| / sigma_k
               ref_diff       m_t = a_t - a_t of the reference policy
               activation     m_t = a_t
    weight     w_t = clip(1 + lambda_w z_t(m), low, high), scaled to mean 1
    quality    q_i = clip(mean_t a_t, -c, c)
    proxy      A_i = lambda_p (q_i - mean_G q) / std_G q       zero-variance groups only

h_t is the residual stream at completion token t, after the policy has read it: the
policy that learns, or with `features_of=reference` the policy before RL. It is
never computed at the last token, since nothing follows, and no autoencoder was trained
across the border from prompt to completion. So activations exist at tokens 0..n-2 and
temporal differences at 1..n-2; a token without a score has z = 0. If a completion is
too short to have any score, its tokens all weigh the same.

No gradient flows through anything here: the streams are constants.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.algorithms.advantages.groups import has_signal
from rlvr_jax.algorithms.arrays import ArrayLike, as_array
from rlvr_jax.config import RFGOConfig
from rlvr_jax.learn.probe_inputs import FeatureReader
from rlvr_jax.types import BANDS, Batch, FeatureSums, ReasoningFeatures, length_mask

# Scores that differ by less than this fraction of their size differ only by rounding.
_MIN_SPREAD = 1e-5


def rfgo_token_weights(
    token_scores: ArrayLike,
    mask: ArrayLike,
    *,
    lambda_w: float = 0.5,
    low: float = 0.5,
    high: float = 2.0,
    score_mask: ArrayLike | None = None,
) -> Float[Array, " B T"]:
    """Returns clip(1 + lambda_w z, low, high), scaled to mean 1 over each row's mask.

    z is a score's distance from its row's mean in standard deviations, over the tokens
    of `score_mask` (default: the whole mask). It is 0 at other tokens and in rows whose
    scores do not vary. Weights are 0 outside the mask. The final scaling may move a
    weight beyond the bounds. Raises ValueError unless all arrays are [B, T].

    Example:
        >>> rfgo_token_weights([[0.0, 2.0]], [[True, True]]).tolist()
        [[0.5, 1.5]]
    """
    score_BT = as_array("token_scores", token_scores, "B T")
    sizes = dict(zip("BT", score_BT.shape, strict=True))
    mask_BT = scored_BT = as_array("mask", mask, "B T", dtype=bool, sizes=sizes)
    if score_mask is not None:
        scored_BT = mask_BT & as_array(
            "score_mask", score_mask, "B T", dtype=bool, sizes=sizes
        )
    score_BT = jnp.where(scored_BT, score_BT, 0.0)
    count_B1 = _row_count(scored_BT)
    mean_B1 = score_BT.sum(axis=1, keepdims=True) / count_B1
    deviation_BT = jnp.where(scored_BT, score_BT - mean_B1, 0.0)
    std_B1 = jnp.sqrt((deviation_BT**2).sum(axis=1, keepdims=True) / count_B1)
    size_B1 = jnp.abs(score_BT).max(axis=1, keepdims=True)
    varies_B1 = std_B1 > _MIN_SPREAD * size_B1
    z_BT = jnp.where(varies_B1, deviation_BT / jnp.where(varies_B1, std_B1, 1.0), 0.0)
    weight_BT = jnp.where(mask_BT, jnp.clip(1.0 + lambda_w * z_BT, low, high), 0.0)
    sum_B1 = weight_BT.sum(axis=1, keepdims=True)
    return weight_BT * (_row_count(mask_BT) / _nonzero(sum_B1))


def rfgo_proxy_rewards(
    quality: ArrayLike,
    rewards: ArrayLike,
    *,
    lambda_p: float | Float[Array, ""] = 0.1,
    clip: float = 3.0,
    eligible: ArrayLike | None = None,
) -> Float[Array, " P G"]:
    """Returns the proxy advantages of zero-variance groups, exact zeros in the others.

    A group has zero variance if `has_signal` is False for its rewards. Completions that
    are not `eligible` (malformed ones) get 0 and do not enter their group's mean and
    std. Raises ValueError unless all arrays are [P, G], and on rewards that
    `has_signal` refuses.

    Nothing is added to the std: if a group's qualities do not differ, its proxy
    advantages are 0, as in `group_advantages`.

    Example:
        >>> quality, rewards = [[1.0, 3.0], [1.0, 3.0]], [[0.0, 0.0], [0.0, 1.0]]
        >>> print(rfgo_proxy_rewards(quality, rewards, lambda_p=0.5))
        [[-0.5  0.5]
         [ 0.   0. ]]
    """
    quality_PG = as_array("quality", quality, "P G")
    sizes = dict(zip("PG", quality_PG.shape, strict=True))
    zero_variance_P = ~has_signal(as_array("rewards", rewards, "P G", sizes=sizes))
    eligible_PG = jnp.broadcast_to(zero_variance_P[:, None], quality_PG.shape)
    if eligible is not None:
        eligible_PG &= as_array("eligible", eligible, "P G", dtype=bool, sizes=sizes)
    return _proxy_advantages(quality_PG, eligible_PG, strength=lambda_p, clip=clip)


def _proxy_advantages(
    quality: Float[Array, " P G"],
    eligible: Bool[Array, " P G"],
    *,
    strength: float | Float[Array, ""],
    clip: float,
) -> Float[Array, " P G"]:
    quality = jnp.where(eligible, jnp.clip(quality, -clip, clip), 0.0)
    count_P1 = _row_count(eligible)
    mean_P1 = quality.sum(axis=1, keepdims=True) / count_P1
    deviation_PG = jnp.where(eligible, quality - mean_P1, 0.0)
    std_P1 = jnp.sqrt((deviation_PG**2).sum(axis=1, keepdims=True) / count_P1)
    varies_P1 = std_P1 > _MIN_SPREAD * jnp.abs(quality).max(axis=1, keepdims=True)
    scaled_PG = deviation_PG / jnp.where(varies_P1, std_P1, 1.0)
    return jnp.where(varies_P1, strength * scaled_PG, 0.0)


def read_features(
    reader: FeatureReader, residual: Float[Array, " B T D"]
) -> Float[Array, " B T R"]:
    """Returns a probe's features of a residual stream, without a gradient."""
    wide_BTD = jax.lax.stop_gradient(residual).astype(jnp.float32)
    return jax.lax.stop_gradient(reader.features(wide_BTD))


def feature_activation(
    f: Float[Array, " B T R"], reasoning_features: ReasoningFeatures
) -> Float[Array, " B T"]:
    """Returns a: the weighted sum of the features, each divided by its scale."""
    return (
        f * (reasoning_features.weights / reasoning_features.scale)[None, None]
    ).sum(axis=-1)


def activation_mask(batch: Batch) -> Bool[Array, " B T"]:
    """Returns which tokens have an activation: the policy's, except a row's last."""
    return batch.mask & length_mask(batch.lengths - 1, batch.tokens.shape[1])


def zero_feature_sums(reasoning_features: ReasoningFeatures) -> FeatureSums:
    """Returns the sums over no completions."""
    R, Q = reasoning_features.weights.shape[0], len(BANDS)
    shapes = {
        "tokens_by_band": (Q,),
        "sums_by_band": (Q, R),
        "sum_squares": (R,),
        "tokens_by_outcome": (2,),
        "sums_by_outcome": (2, R),
        "moments": (3,),
        "moment_products": (3, 3),
    }
    names = [field.name for field in dataclasses.fields(FeatureSums)]
    return FeatureSums(
        **{name: jnp.zeros(shapes.get(name, ()), jnp.float32) for name in names}
    )


def apply_rfgo(
    f: Float[Array, " B T R"],
    batch: Batch,
    reasoning_features: ReasoningFeatures,
    *,
    config: RFGOConfig,
    shuffle_weights: bool,
) -> tuple[Batch, FeatureSums]:
    """Returns the batch with RFGO's token weights and proxy advantages, and sums.

    `f` are the policy's features at the completions' tokens, from `read_features`; the
    last column may be missing, and values beyond a completion are ignored. With
    `features_of=reference` the batch's own are used instead. Token weights multiply
    the surrogate, not the KL. With lambda_w=0 no weights are set; with lambda_p=0 the
    advantages do not change.
    """
    if batch.probe_targets is None:
        raise ValueError("RFGO needs a batch with probe_targets")
    T = batch.tokens.shape[1]
    if config.features_of == "reference":
        f = _reference_features(batch)
    f_BTR = jnp.pad(f[:, :T], ((0, 0), (0, max(0, T - f.shape[1])), (0, 0)))
    has_activation_BT = activation_mask(batch)
    f_BTR = jnp.where(has_activation_BT[:, :, None], f_BTR, 0.0)
    activation_BT = feature_activation(f_BTR, reasoning_features)
    quality_B = activation_BT.sum(axis=1) / _row_count(has_activation_BT)[:, 0]
    quality_B = jnp.clip(quality_B, -config.proxy_clip, config.proxy_clip)
    sums = _feature_sums(f_BTR, batch, has_activation_BT)
    sums |= _outcome_moments(quality_B, batch, batch.probe_targets.outcomes)
    mask_BT = batch.mask
    weight_BT = jnp.where(mask_BT, 1.0, 0.0)
    if config.lambda_w > 0:
        weight_BT = _token_weights(
            f_BTR, activation_BT, batch, reasoning_features, config
        )
        if shuffle_weights:
            weight_BT = _shuffle_weights(
                weight_BT,
                mask_BT,
                key=reasoning_features.key,
                row=batch.probe_targets.row,
            )
        batch = dataclasses.replace(
            batch, token_weights=jax.lax.stop_gradient(weight_BT)
        )
    proxy_PG = jnp.zeros((batch.prompt_lengths.shape[0], 1))
    if config.lambda_p > 0:
        batch, proxy_PG = _add_proxy(quality_B, batch, reasoning_features, config)
    return batch, FeatureSums(
        **sums,
        proxy_groups=_count_true((proxy_PG != 0).any(axis=1)),
        proxy_completions=_count_true(proxy_PG != 0),
        weight_sq_deviation=jnp.where(mask_BT, (weight_BT - 1.0) ** 2, 0.0).sum(),
        num_weighted_tokens=_count_true(mask_BT),
    )


def _token_weights(
    f: Float[Array, " B T R"],
    activation: Float[Array, " B T"],
    batch: Batch,
    reasoning_features: ReasoningFeatures,
    config: RFGOConfig,
) -> Float[Array, " B T"]:
    """Returns the weights of a batch's tokens, from the configured scores."""
    score_BT, score_mask_BT = _token_scores(
        f,
        activation,
        batch,
        reasoning_features,
        has_activation=activation_mask(batch),
        token_score=config.token_score,
    )
    return rfgo_token_weights(
        score_BT,
        batch.mask,
        lambda_w=config.lambda_w,
        low=config.weight_low,
        high=config.weight_high,
        score_mask=score_mask_BT,
    )


def _add_proxy(
    quality: Float[Array, " B"],
    batch: Batch,
    reasoning_features: ReasoningFeatures,
    config: RFGOConfig,
) -> tuple[Batch, Float[Array, " P G"]]:
    """Returns the batch with proxy advantages added, and the proxy advantages."""
    assert batch.probe_targets is not None
    shape_PG = (batch.prompt_lengths.shape[0], -1)
    eligible_B = batch.probe_targets.proxy_eligible & (batch.lengths > 1)
    proxy_PG = _proxy_advantages(
        quality.reshape(shape_PG),
        eligible_B.reshape(shape_PG),
        strength=reasoning_features.proxy_strength,
        clip=config.proxy_clip,
    )
    advantages_B = batch.advantages + proxy_PG.reshape(-1)
    return dataclasses.replace(batch, advantages=advantages_B), proxy_PG


def _token_scores(
    f: Float[Array, " B T R"],
    activation: Float[Array, " B T"],
    batch: Batch,
    reasoning_features: ReasoningFeatures,
    *,
    has_activation: Bool[Array, " B T"],
    token_score: str,
) -> tuple[Float[Array, " B T"], Bool[Array, " B T"]]:
    """Returns each token's `token_score`, and the mask of the tokens that have one."""
    if token_score == "activation":
        return activation, has_activation
    if token_score == "ref_diff":
        ref_f_BTR = _reference_features(batch)
        ref_BT = feature_activation(ref_f_BTR, reasoning_features)
        return activation - ref_BT, has_activation
    per_unit_R = jnp.abs(reasoning_features.weights) / reasoning_features.scale
    return feature_movement(f, per_unit_R, has_activation)


def _reference_features(batch: Batch) -> Float[Array, " B T R"]:
    assert batch.probe_targets is not None
    assert batch.probe_targets.ref_features is not None
    return batch.probe_targets.ref_features


def feature_movement(
    f: Float[Array, " B T R"],
    per_unit: Float[Array, " R"],
    has_activation: Bool[Array, " B T"],
) -> tuple[Float[Array, " B T"], Bool[Array, " B T"]]:
    """Returns sum_k per_unit_k |f_k(h_t) - f_k(h_{t-1})|, and which tokens have one.

    This is the score `temporal_diff`, with |s_k| / sigma_k as `per_unit`. A token has
    one if it and the token before it have an activation.
    """
    step_BTR = jnp.abs(f[:, 1:] - f[:, :-1])
    score_BT = (step_BTR * per_unit[None, None]).sum(axis=-1)
    first = ((0, 0), (1, 0))
    return jnp.pad(score_BT, first), has_activation & jnp.pad(
        has_activation[:, :-1], first
    )


def _shuffle_weights(
    weight: Float[Array, " B T"],
    mask: Bool[Array, " B T"],
    *,
    key: Array,
    row: Int[Array, " B"],
) -> Float[Array, " B T"]:
    """Returns each row's weights in a random order of its tokens: a control.

    Every row has its own order, which depends on the key and the row's number, but not
    on how the batch is split or padded.
    """

    def draw(row: Int[Array, ""]) -> Float[Array, " T"]:
        return jax.random.uniform(jax.random.fold_in(key, row), weight.shape[1:])

    order_BT = jnp.argsort(jnp.where(mask, jax.vmap(draw)(row), 2.0), axis=1)
    first_BT = jnp.take_along_axis(weight, order_BT, axis=1)
    # An environment's replies are gaps in the mask: its k-th token gets weight k.
    places_BT = jnp.argsort(~mask, axis=1, stable=True)
    return jnp.take_along_axis(first_BT, jnp.argsort(places_BT, axis=1), axis=1)


def _feature_sums(
    f: Float[Array, " B T R"], batch: Batch, has_activation: Bool[Array, " B T"]
) -> dict[str, Array]:
    """Returns sums over tokens by band and by outcome."""
    assert batch.probe_targets is not None
    row_sum_BR = f.sum(axis=1)
    tokens_B = has_activation.sum(axis=1).astype(jnp.float32)
    band_BQ = batch.bands[:, None] == jnp.arange(len(BANDS))[None]
    outcome_BO = batch.probe_targets.outcomes[:, None] == jnp.arange(2)[None]

    def by(member_BK: Array, values_BR: Array) -> Array:
        return jnp.where(member_BK[:, :, None], values_BR[:, None], 0.0).sum(axis=0)

    return {
        "tokens_by_band": by(band_BQ, tokens_B[:, None])[:, 0],
        "sums_by_band": by(band_BQ, row_sum_BR),
        "num_tokens": tokens_B.sum(),
        "sum_squares": (f**2).sum(axis=(0, 1)),
        "tokens_by_outcome": by(outcome_BO, tokens_B[:, None])[:, 0],
        "sums_by_outcome": by(outcome_BO, row_sum_BR),
    }


def _outcome_moments(
    quality: Float[Array, " B"], batch: Batch, outcomes: Int[Array, " B"]
) -> dict[str, Array]:
    """Returns sums over groups of the moments of quality and outcome in each group."""
    P = batch.prompt_lengths.shape[0]
    outcome_PG = outcomes.reshape(P, -1)
    verified_PG = (outcome_PG < 2) & (batch.lengths > 1).reshape(P, -1)

    def center(values_PG: Array) -> Array:
        values_PG = jnp.where(verified_PG, values_PG, 0.0)
        mean_P1 = values_PG.sum(axis=1, keepdims=True) / _row_count(verified_PG)
        return jnp.where(verified_PG, values_PG - mean_P1, 0.0)

    outcome_PG = center(outcome_PG.astype(jnp.float32))
    informative_P = (jnp.abs(outcome_PG) > 0).any(axis=1)
    quality_PG = jnp.where(informative_P[:, None], center(quality.reshape(P, -1)), 0.0)
    pairs = (quality_PG * outcome_PG, quality_PG**2, outcome_PG**2)
    moments_P3 = jnp.stack([pair_PG.sum(axis=1) for pair_PG in pairs], axis=1)
    return {
        "num_informative_groups": _count_true(informative_P),
        "moments": moments_P3.sum(axis=0),
        "moment_products": (moments_P3[:, :, None] * moments_P3[:, None]).sum(axis=0),
    }


def _row_count(mask: Bool[Array, " B T"]) -> Float[Array, " B 1"]:
    """Returns how many entries of each row are true, at least 1."""
    return jnp.maximum(mask.sum(axis=1, keepdims=True), 1).astype(jnp.float32)


def _nonzero(values: Array) -> Array:
    return jnp.where(values > 0, values, 1.0)


def _count_true(mask: Array) -> Float[Array, ""]:
    return mask.sum().astype(jnp.float32)
