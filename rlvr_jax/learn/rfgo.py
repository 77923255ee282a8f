"""Reasoning-feature-guided optimization: token weights and proxy advantages.

The idea, token weights from the movement of reasoning features and a feature-based
proxy reward for zero-variance groups alone, is that of https://arxiv.org/abs/2605.28388,
whose equations are not public. Everything here is our reading:

    level      a_t = sum_k s_k f_k(h_t) / sigma_k
    movement   temporal    m_t = sum_k |s_k| |f_k(h_t) - f_k(h_{t-1})| / sigma_k
               policy_ref  m_t = a_t - a_t of the reference policy
               level       m_t = a_t
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
from rlvr_jax.learn.advantages import is_split
from rlvr_jax.learn.inputs import ArrayLike, read
from rlvr_jax.types import BANDS, Batch, Guide, GuideSums

# Movements that differ by less than this share of their size differ by rounding alone.
_MIN_SPREAD = 1e-5


def rfgo_token_weights(
    movement: ArrayLike,
    mask: ArrayLike,
    *,
    lambda_w: float = 0.5,
    low: float = 0.5,
    high: float = 2.0,
    measured: ArrayLike | None = None,
) -> Float[Array, " B T"]:
    """Returns clip(1 + lambda_w z, low, high), scaled to mean 1 over each row's mask.

    z counts movements in standard deviations from their row's mean, over the `measured`
    tokens (all of the mask by default); it is 0 at the others and in rows that do not
    vary. Weights are 0 outside the mask. Scaling may carry a weight beyond the bounds.
    All arrays are [B, T]; others are a ValueError.
    """
    moved_BT = read("movement", movement, "B T")
    sizes = dict(zip("BT", moved_BT.shape, strict=True))
    mask_BT = measured_BT = read("mask", mask, "B T", dtype=bool, sizes=sizes)
    if measured is not None:
        measured_BT = mask_BT & read(
            "measured", measured, "B T", dtype=bool, sizes=sizes
        )
    moved_BT = jnp.where(measured_BT, moved_BT, 0.0)
    count_B1 = _count(measured_BT)
    mean_B1 = moved_BT.sum(axis=1, keepdims=True) / count_B1
    apart_BT = jnp.where(measured_BT, moved_BT - mean_B1, 0.0)
    std_B1 = jnp.sqrt((apart_BT**2).sum(axis=1, keepdims=True) / count_B1)
    size_B1 = jnp.abs(moved_BT).max(axis=1, keepdims=True)
    varies_B1 = std_B1 > _MIN_SPREAD * size_B1
    z_BT = jnp.where(varies_B1, apart_BT / jnp.where(varies_B1, std_B1, 1.0), 0.0)
    weight_BT = jnp.where(mask_BT, jnp.clip(1.0 + lambda_w * z_BT, low, high), 0.0)
    sum_B1 = weight_BT.sum(axis=1, keepdims=True)
    return weight_BT * (_count(mask_BT) / _positive(sum_B1))


def rfgo_proxy_rewards(
    quality: ArrayLike,
    rewards: ArrayLike,
    *,
    lambda_p: float | Float[Array, ""] = 0.1,
    clip: float = 3.0,
    eligible: ArrayLike | None = None,
) -> Float[Array, " P G"]:
    """Returns the proxy advantages of zero-variance groups, exact zeros in the others.

    A group has zero variance where `is_split` says that its rewards hold no preference.
    Completions that are not `eligible` (malformed ones) get 0 and have no say in their
    group's mean and std. All arrays are [P, G]; others, and rewards that `is_split`
    refuses, are a ValueError.

    Deviation from METHODS' formula: nothing is added to the std; a group whose
    qualities do not differ is silent, as `group_advantages` has it.
    """
    quality_PG = read("quality", quality, "P G")
    sizes = dict(zip("PG", quality_PG.shape, strict=True))
    silent_P = ~is_split(read("rewards", rewards, "P G", sizes=sizes))
    asked_PG = jnp.broadcast_to(silent_P[:, None], quality_PG.shape)
    if eligible is not None:
        asked_PG &= read("eligible", eligible, "P G", dtype=bool, sizes=sizes)
    return _proxies(quality_PG, asked_PG, strength=lambda_p, clip=clip)


def _proxies(
    quality: Float[Array, " P G"],
    eligible: Bool[Array, " P G"],
    *,
    strength: float | Float[Array, ""],
    clip: float,
) -> Float[Array, " P G"]:
    quality = jnp.where(eligible, jnp.clip(quality, -clip, clip), 0.0)
    count_P1 = _count(eligible)
    mean_P1 = quality.sum(axis=1, keepdims=True) / count_P1
    apart_PG = jnp.where(eligible, quality - mean_P1, 0.0)
    std_P1 = jnp.sqrt((apart_PG**2).sum(axis=1, keepdims=True) / count_P1)
    varies_P1 = std_P1 > _MIN_SPREAD * jnp.abs(quality).max(axis=1, keepdims=True)
    scaled_PG = apart_PG / jnp.where(varies_P1, std_P1, 1.0)
    return jnp.where(varies_P1, strength * scaled_PG, 0.0)


def features(stream: Float[Array, " B T D"], guide: Guide) -> Float[Array, " B T R"]:
    """Returns the reasoning features of a residual stream, as constants."""
    wide_BTD = jax.lax.stop_gradient(stream).astype(jnp.float32)
    pre_BTR = (wide_BTD - guide.center[None, None]) @ guide.encoder
    pre_BTR = pre_BTR + guide.bias[None, None]
    return jnp.where(pre_BTR > guide.threshold[None, None], pre_BTR, 0.0)


def levels(f: Float[Array, " B T R"], guide: Guide) -> Float[Array, " B T"]:
    """Returns a: the weighted sum of features, each in units of its scale."""
    return (f * (guide.weights / guide.scale)[None, None]).sum(axis=-1)


def has_level(lengths: Int[Array, " B"], width: int) -> Bool[Array, " B T"]:
    """Returns which tokens have a level: all of a completion but its last."""
    return jnp.arange(width, dtype=jnp.int32)[None] < lengths[:, None] - 1


def no_sums(guide: Guide) -> GuideSums:
    """Returns the sums over no completions."""
    R, Q = guide.weights.shape[0], len(BANDS)
    shapes = {
        "tokens": (Q,),
        "sums": (Q, R),
        "squares": (R,),
        "outcome_tokens": (2,),
        "outcome_sums": (2, R),
    }
    names = [field.name for field in dataclasses.fields(GuideSums)]
    return GuideSums(
        **{name: jnp.zeros(shapes.get(name, ()), jnp.float32) for name in names}
    )


def guided(
    stream: Float[Array, " B T D"],
    batch: Batch,
    guide: Guide,
    *,
    config: RFGOConfig,
    shuffled: bool,
) -> tuple[Batch, GuideSums]:
    """Returns the batch with its credit and advantages guided, and what was seen.

    `stream` is the probed layer's at the completions' tokens; that of the last column
    is missing or ignored. The weights are the batch's credit: they count in the
    surrogate and not in the KL. With lambda_w=0 there is none, and with lambda_p=0 the
    advantages are those given, untouched.
    """
    guidance = batch.guidance
    if guidance is None:
        raise ValueError("a guide needs a batch with guidance")
    B, T = batch.tokens.shape
    f_BTR = features(stream[:, : T - 1], guide)
    f_BTR = jnp.pad(f_BTR, ((0, 0), (0, T - f_BTR.shape[1]), (0, 0)))
    known_BT = has_level(batch.lengths, T)
    f_BTR = jnp.where(known_BT[:, :, None], f_BTR, 0.0)
    level_BT = levels(f_BTR, guide)
    quality_B = level_BT.sum(axis=1) / _count(known_BT)[:, 0]
    quality_B = jnp.clip(quality_B, -config.proxy_clip, config.proxy_clip)
    mask_BT = jnp.arange(T, dtype=jnp.int32)[None] < batch.lengths[:, None]
    weight_BT = jnp.where(mask_BT, 1.0, 0.0)
    if config.lambda_w > 0:
        movement_BT, measured_BT = _movement(
            f_BTR, level_BT, batch, guide, known=known_BT, kind=config.movement
        )
        weight_BT = rfgo_token_weights(
            movement_BT,
            mask_BT,
            lambda_w=config.lambda_w,
            low=config.weight_low,
            high=config.weight_high,
            measured=measured_BT,
        )
        if shuffled:
            weight_BT = _shuffled(weight_BT, mask_BT, guide.key)
        batch = dataclasses.replace(batch, credit=jax.lax.stop_gradient(weight_BT))
    shape_PG = (batch.prompt_lengths.shape[0], -1)
    proxy_PG = jnp.zeros(B, jnp.float32).reshape(shape_PG)
    if config.lambda_p > 0:
        proxy_PG = _proxies(
            quality_B.reshape(shape_PG),
            (guidance.proxied & (batch.lengths > 1)).reshape(shape_PG),
            strength=guide.proxy_strength,
            clip=config.proxy_clip,
        )
        advantages_B = batch.advantages + proxy_PG.reshape(B)
        batch = dataclasses.replace(batch, advantages=advantages_B)
    return batch, GuideSums(
        **_sums(f_BTR, batch, known_BT),
        **_agreement(quality_B, batch, guidance.outcomes),
        proxied_groups=_total((proxy_PG != 0).any(axis=1)),
        proxied_rows=_total(proxy_PG != 0),
        weight_deviation=jnp.where(mask_BT, (weight_BT - 1.0) ** 2, 0.0).sum(),
        weighed_tokens=_total(mask_BT),
    )


def _movement(
    f: Float[Array, " B T R"],
    level: Float[Array, " B T"],
    batch: Batch,
    guide: Guide,
    *,
    known: Bool[Array, " B T"],
    kind: str,
) -> tuple[Float[Array, " B T"], Bool[Array, " B T"]]:
    """Returns the movement that each token brought about, and where there is one."""
    if kind == "level":
        return level, known
    if kind == "policy_ref":
        assert batch.guidance is not None
        return level - batch.guidance.ref_levels, known
    step_BTR = jnp.abs(f[:, 1:] - f[:, :-1])
    per_unit_R = jnp.abs(guide.weights) / guide.scale
    moved_BT = (step_BTR * per_unit_R[None, None]).sum(axis=-1)
    first = ((0, 0), (1, 0))
    return jnp.pad(moved_BT, first), known & jnp.pad(known[:, :-1], first)


def _shuffled(
    weight: Float[Array, " B T"], mask: Bool[Array, " B T"], key: Array
) -> Float[Array, " B T"]:
    """Returns each row's weights in a random order of its tokens: a control.

    A row's order depends on the key and on its own weights' number, not on the batch.
    """
    draw_T = jax.random.uniform(key, weight.shape[1:])
    order_BT = jnp.argsort(jnp.where(mask, draw_T[None], 2.0), axis=1)
    return jnp.take_along_axis(weight, order_BT, axis=1)


def _sums(
    f_BTR: Float[Array, " B T R"], batch: Batch, known_BT: Bool[Array, " B T"]
) -> dict[str, Array]:
    """Returns sums over tokens by band and by outcome."""
    assert batch.guidance is not None
    row_sum_BR = f_BTR.sum(axis=1)
    tokens_B = known_BT.sum(axis=1).astype(jnp.float32)
    band_BQ = batch.bands[:, None] == jnp.arange(len(BANDS))[None]
    outcome_BO = batch.guidance.outcomes[:, None] == jnp.arange(2)[None]

    def by(member_BK: Array, values_BR: Array) -> Array:
        return jnp.where(member_BK[:, :, None], values_BR[:, None], 0.0).sum(axis=0)

    return {
        "tokens": by(band_BQ, tokens_B[:, None])[:, 0],
        "sums": by(band_BQ, row_sum_BR),
        "level_tokens": tokens_B.sum(),
        "squares": (f_BTR**2).sum(axis=(0, 1)),
        "outcome_tokens": by(outcome_BO, tokens_B[:, None])[:, 0],
        "outcome_sums": by(outcome_BO, row_sum_BR),
    }


def _agreement(
    quality_B: Float[Array, " B"], batch: Batch, outcomes_B: Int[Array, " B"]
) -> dict[str, Array]:
    """Returns moments of quality and outcome, each less its group's mean."""
    P = batch.prompt_lengths.shape[0]
    outcome_PG = outcomes_B.reshape(P, -1)
    judged_PG = (outcome_PG < 2) & (batch.lengths > 1).reshape(P, -1)

    def centred(values_PG: Array) -> Array:
        values_PG = jnp.where(judged_PG, values_PG, 0.0)
        mean_P1 = values_PG.sum(axis=1, keepdims=True) / _count(judged_PG)
        return jnp.where(judged_PG, values_PG - mean_P1, 0.0)

    outcome_PG = centred(outcome_PG.astype(jnp.float32))
    informative_P1 = (jnp.abs(outcome_PG) > 0).any(axis=1, keepdims=True)
    quality_PG = jnp.where(informative_P1, centred(quality_B.reshape(P, -1)), 0.0)
    return {
        "covariance": (quality_PG * outcome_PG).sum(),
        "quality_square": (quality_PG**2).sum(),
        "outcome_square": (outcome_PG**2).sum(),
    }


def _count(mask: Bool[Array, " B T"]) -> Float[Array, " B 1"]:
    """Returns how many of a row are true, at least 1."""
    return jnp.maximum(mask.sum(axis=1, keepdims=True), 1).astype(jnp.float32)


def _positive(values: Array) -> Array:
    return jnp.where(values > 0, values, 1.0)


def _total(mask: Array) -> Float[Array, ""]:
    return mask.sum().astype(jnp.float32)
