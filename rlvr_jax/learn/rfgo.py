"""Reasoning-feature-guided optimization: token weights and proxy advantages.

The idea, token weights from the movement of reasoning features and a feature-based
proxy reward for zero-variance groups alone, is that of https://arxiv.org/abs/2605.28388,
whose equations are not public. Everything here is our reading:

    level      a_t = sum_k s_k f_k(h_t) / sigma_k
    score      temporal_diff  m_t = sum_k |s_k| |f_k(h_t) - f_k(h_{t-1})| / sigma_k
               ref_diff       m_t = a_t - a_t of the reference policy
               activation     m_t = a_t
    weight     w_t = clip(1 + lambda_w z_t(m), low, high), scaled to mean 1
    quality    q_i = clip(mean_t a_t, -c, c)
    proxy      A_i = lambda_p (q_i - mean_G q) / std_G q       zero-variance groups only

h_t is the residual stream at completion token t, after the policy has read it. The last
token's is never computed, since nothing follows it; and no autoencoder was trained
across the border from prompt to completion. So levels exist at tokens 0..n-2, temporal
movements at 1..n-2, and a token without one has z = 0. A completion too short to have
any weighs its tokens alike.

Nothing here passes a gradient on: streams are constants to it.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import RFGOConfig
from rlvr_jax.learn.advantages import has_signal
from rlvr_jax.learn.arrays import ArrayLike, as_array
from rlvr_jax.learn.probe_inputs import FeatureReader
from rlvr_jax.types import BANDS, Batch, FeatureSums, ReasoningFeatures, length_mask

# Movements that differ by less than this share of their size differ by rounding alone.
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

    z counts movements in standard deviations from their row's mean, over the `measured`
    tokens (all of the mask by default); it is 0 at the others and in rows that do not
    vary. Weights are 0 outside the mask. Scaling may carry a weight beyond the bounds.
    All arrays are [B, T]; others are a ValueError.

    Example:
        >>> rfgo_token_weights([[0.0, 2.0]], [[True, True]]).tolist()
        [[0.5, 1.5]]
    """
    moved_BT = as_array("token_scores", token_scores, "B T")
    sizes = dict(zip("BT", moved_BT.shape, strict=True))
    mask_BT = measured_BT = as_array("mask", mask, "B T", dtype=bool, sizes=sizes)
    if score_mask is not None:
        measured_BT = mask_BT & as_array(
            "score_mask", score_mask, "B T", dtype=bool, sizes=sizes
        )
    moved_BT = jnp.where(measured_BT, moved_BT, 0.0)
    count_B1 = _row_count(measured_BT)
    mean_B1 = moved_BT.sum(axis=1, keepdims=True) / count_B1
    apart_BT = jnp.where(measured_BT, moved_BT - mean_B1, 0.0)
    std_B1 = jnp.sqrt((apart_BT**2).sum(axis=1, keepdims=True) / count_B1)
    size_B1 = jnp.abs(moved_BT).max(axis=1, keepdims=True)
    varies_B1 = std_B1 > _MIN_SPREAD * size_B1
    z_BT = jnp.where(varies_B1, apart_BT / jnp.where(varies_B1, std_B1, 1.0), 0.0)
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

    A group has zero variance where `has_signal` says that its rewards hold no
    preference. Completions that are not `eligible` (malformed ones) get 0 and have no
    say in their group's mean and std. All arrays are [P, G]; others, and rewards that
    `has_signal` refuses, are a ValueError.

    Deviation from METHODS' formula: nothing is added to the std; a group whose
    qualities do not differ is silent, as `group_advantages` has it.

    Example:
        >>> quality, rewards = [[1.0, 3.0], [1.0, 3.0]], [[0.0, 0.0], [0.0, 1.0]]
        >>> print(rfgo_proxy_rewards(quality, rewards, lambda_p=0.5))
        [[-0.5  0.5]
         [ 0.   0. ]]
    """
    quality_PG = as_array("quality", quality, "P G")
    sizes = dict(zip("PG", quality_PG.shape, strict=True))
    silent_P = ~has_signal(as_array("rewards", rewards, "P G", sizes=sizes))
    asked_PG = jnp.broadcast_to(silent_P[:, None], quality_PG.shape)
    if eligible is not None:
        asked_PG &= as_array("eligible", eligible, "P G", dtype=bool, sizes=sizes)
    return _proxy_advantages(quality_PG, asked_PG, strength=lambda_p, clip=clip)


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
    apart_PG = jnp.where(eligible, quality - mean_P1, 0.0)
    std_P1 = jnp.sqrt((apart_PG**2).sum(axis=1, keepdims=True) / count_P1)
    varies_P1 = std_P1 > _MIN_SPREAD * jnp.abs(quality).max(axis=1, keepdims=True)
    scaled_PG = apart_PG / jnp.where(varies_P1, std_P1, 1.0)
    return jnp.where(varies_P1, strength * scaled_PG, 0.0)


def read_features(
    reader: FeatureReader, residual: Float[Array, " B T D"]
) -> Float[Array, " B T R"]:
    """Returns a probe's features of a residual stream; no gradient passes."""
    wide_BTD = jax.lax.stop_gradient(residual).astype(jnp.float32)
    return jax.lax.stop_gradient(reader.features(wide_BTD))


def feature_activation(
    f: Float[Array, " B T R"], reasoning_features: ReasoningFeatures
) -> Float[Array, " B T"]:
    """Returns a: the weighted sum of features, each in units of its scale."""
    return (
        f * (reasoning_features.weights / reasoning_features.scale)[None, None]
    ).sum(axis=-1)


def activation_mask(lengths: Int[Array, " B"], width: int) -> Bool[Array, " B T"]:
    """Returns which tokens have a level: all of a completion but its last."""
    return length_mask(lengths - 1, width)


def zero_feature_sums(reasoning_features: ReasoningFeatures) -> FeatureSums:
    """Returns the sums over no completions."""
    R, Q = reasoning_features.weights.shape[0], len(BANDS)
    shapes = {
        "tokens_by_band": (Q,),
        "sums_by_band": (Q, R),
        "sum_squares": (R,),
        "tokens_by_outcome": (2,),
        "sums_by_outcome": (2, R),
    }
    names = [field.name for field in dataclasses.fields(FeatureSums)]
    return FeatureSums(
        **{name: jnp.zeros(shapes.get(name, ()), jnp.float32) for name in names}
    )


def apply_rfgo(
    f_BTR: Float[Array, " B T R"],
    batch: Batch,
    reasoning_features: ReasoningFeatures,
    *,
    config: RFGOConfig,
    shuffle_weights: bool,
) -> tuple[Batch, FeatureSums]:
    """Returns the batch with RFGO's token weights and proxy advantages, and sums.

    `f_BTR` are the features at the completions' tokens, from `read_features`; the last
    column may be missing, and values beyond a completion are ignored. Token weights
    count in the surrogate, not in the KL. With lambda_w=0 no weights are set; with
    lambda_p=0 the advantages are those of the batch, untouched.
    """
    targets = batch.probe_targets
    if targets is None:
        raise ValueError("RFGO needs a batch with probe_targets")
    B, T = batch.tokens.shape
    f_BTR = jnp.pad(f_BTR[:, :T], ((0, 0), (0, max(0, T - f_BTR.shape[1])), (0, 0)))
    known_BT = activation_mask(batch.lengths, T)
    f_BTR = jnp.where(known_BT[:, :, None], f_BTR, 0.0)
    level_BT = feature_activation(f_BTR, reasoning_features)
    quality_B = level_BT.sum(axis=1) / _row_count(known_BT)[:, 0]
    quality_B = jnp.clip(quality_B, -config.proxy_clip, config.proxy_clip)
    mask_BT = batch.mask
    weight_BT = jnp.where(mask_BT, 1.0, 0.0)
    if config.lambda_w > 0:
        movement_BT, measured_BT = _token_scores(
            f_BTR,
            level_BT,
            batch,
            reasoning_features,
            has_activation=known_BT,
            token_score=config.token_score,
        )
        weight_BT = rfgo_token_weights(
            movement_BT,
            mask_BT,
            lambda_w=config.lambda_w,
            low=config.weight_low,
            high=config.weight_high,
            score_mask=measured_BT,
        )
        if shuffle_weights:
            weight_BT = _shuffle_weights(weight_BT, mask_BT, reasoning_features.key)
        batch = dataclasses.replace(
            batch, token_weights=jax.lax.stop_gradient(weight_BT)
        )
    shape_PG = (batch.prompt_lengths.shape[0], -1)
    proxy_PG = jnp.zeros(B, jnp.float32).reshape(shape_PG)
    if config.lambda_p > 0:
        proxy_PG = _proxy_advantages(
            quality_B.reshape(shape_PG),
            (targets.proxy_eligible & (batch.lengths > 1)).reshape(shape_PG),
            strength=reasoning_features.proxy_strength,
            clip=config.proxy_clip,
        )
        advantages_B = batch.advantages + proxy_PG.reshape(B)
        batch = dataclasses.replace(batch, advantages=advantages_B)
    return batch, FeatureSums(
        **_feature_sums(f_BTR, batch, known_BT),
        **_outcome_correlation_sums(quality_B, batch, targets.outcomes),
        proxy_groups=_count_true((proxy_PG != 0).any(axis=1)),
        proxy_completions=_count_true(proxy_PG != 0),
        weight_sq_deviation=jnp.where(mask_BT, (weight_BT - 1.0) ** 2, 0.0).sum(),
        num_weighted_tokens=_count_true(mask_BT),
    )


def _token_scores(
    f: Float[Array, " B T R"],
    activation: Float[Array, " B T"],
    batch: Batch,
    reasoning_features: ReasoningFeatures,
    *,
    has_activation: Bool[Array, " B T"],
    token_score: str,
) -> tuple[Float[Array, " B T"], Bool[Array, " B T"]]:
    """Returns each token's score, by `token_score`, and the mask of scored tokens."""
    if token_score == "activation":
        return activation, has_activation
    if token_score == "ref_diff":
        assert batch.probe_targets is not None
        return activation - batch.probe_targets.ref_activations, has_activation
    step_BTR = jnp.abs(f[:, 1:] - f[:, :-1])
    per_unit_R = jnp.abs(reasoning_features.weights) / reasoning_features.scale
    moved_BT = (step_BTR * per_unit_R[None, None]).sum(axis=-1)
    first = ((0, 0), (1, 0))
    return jnp.pad(moved_BT, first), has_activation & jnp.pad(
        has_activation[:, :-1], first
    )


def _shuffle_weights(
    weight: Float[Array, " B T"], mask: Bool[Array, " B T"], key: Array
) -> Float[Array, " B T"]:
    """Returns each row's weights in a random order of its tokens: a control.

    A row's order depends on the key and on its own weights' number, not on the batch.
    """
    draw_T = jax.random.uniform(key, weight.shape[1:])
    order_BT = jnp.argsort(jnp.where(mask, draw_T[None], 2.0), axis=1)
    return jnp.take_along_axis(weight, order_BT, axis=1)


def _feature_sums(
    f_BTR: Float[Array, " B T R"], batch: Batch, has_activation_BT: Bool[Array, " B T"]
) -> dict[str, Array]:
    """Returns sums over tokens by band and by outcome."""
    assert batch.probe_targets is not None
    row_sum_BR = f_BTR.sum(axis=1)
    tokens_B = has_activation_BT.sum(axis=1).astype(jnp.float32)
    band_BQ = batch.bands[:, None] == jnp.arange(len(BANDS))[None]
    outcome_BO = batch.probe_targets.outcomes[:, None] == jnp.arange(2)[None]

    def by(member_BK: Array, values_BR: Array) -> Array:
        return jnp.where(member_BK[:, :, None], values_BR[:, None], 0.0).sum(axis=0)

    return {
        "tokens_by_band": by(band_BQ, tokens_B[:, None])[:, 0],
        "sums_by_band": by(band_BQ, row_sum_BR),
        "num_tokens": tokens_B.sum(),
        "sum_squares": (f_BTR**2).sum(axis=(0, 1)),
        "tokens_by_outcome": by(outcome_BO, tokens_B[:, None])[:, 0],
        "sums_by_outcome": by(outcome_BO, row_sum_BR),
    }


def _outcome_correlation_sums(
    quality_B: Float[Array, " B"], batch: Batch, outcomes_B: Int[Array, " B"]
) -> dict[str, Array]:
    """Returns moments of quality and outcome, each less its group's mean."""
    P = batch.prompt_lengths.shape[0]
    outcome_PG = outcomes_B.reshape(P, -1)
    judged_PG = (outcome_PG < 2) & (batch.lengths > 1).reshape(P, -1)

    def centered(values_PG: Array) -> Array:
        values_PG = jnp.where(judged_PG, values_PG, 0.0)
        mean_P1 = values_PG.sum(axis=1, keepdims=True) / _row_count(judged_PG)
        return jnp.where(judged_PG, values_PG - mean_P1, 0.0)

    outcome_PG = centered(outcome_PG.astype(jnp.float32))
    informative_P1 = (jnp.abs(outcome_PG) > 0).any(axis=1, keepdims=True)
    quality_PG = jnp.where(informative_P1, centered(quality_B.reshape(P, -1)), 0.0)
    return {
        "covariance": (quality_PG * outcome_PG).sum(),
        "quality_sum_squares": (quality_PG**2).sum(),
        "outcome_sum_squares": (outcome_PG**2).sum(),
    }


def _row_count(mask: Bool[Array, " B T"]) -> Float[Array, " B 1"]:
    """Returns how many of a row are true, at least 1."""
    return jnp.maximum(mask.sum(axis=1, keepdims=True), 1).astype(jnp.float32)


def _nonzero(values: Array) -> Array:
    return jnp.where(values > 0, values, 1.0)


def _count_true(mask: Array) -> Float[Array, ""]:
    return mask.sum().astype(jnp.float32)
