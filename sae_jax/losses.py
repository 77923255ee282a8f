"""The loss of a temporal sparse autoencoder.

    f = the k B largest activations of the batch,  xhat_g = groups 0..g of f, decoded
    L = sum_g w_g |x - xhat_g|^2  +  auxk_coef AuxK  +  alpha contrast(f_high, p_high)

p are the partners' latents; the contrast makes the high-level latents of a token tell
its own partner from the other tokens' (InfoNCE). AuxK lets dead latents explain what
the others left over. References:
  T-SAE      https://arxiv.org/abs/2511.05541
  Matryoshka https://arxiv.org/abs/2503.17547
  AuxK       https://arxiv.org/abs/2406.04093 (appendix A.2)

Where this differs from the T-SAE authors' code:
1. Padding rows reach no term.
2. InfoNCE may run over blocks of `contrast_rows` pairs: over a whole large batch it
   costs more than all the rest. The preset `reference` takes the whole batch.
3. Partners may share the tokens' cut (`partner_sparsity`): then only their high-level
   latents are computed at all. In the preset `reference` they have their own.
4. Nested errors are added up, not averaged: a weight is half of theirs for two groups.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sae_jax.config import Dtype, LossConfig, SAEConfig
from sae_jax.sae import TSAE
from sae_jax.sparsity import batch_cut, keep, row_cuts
from sae_jax.types import LossParts, Pairs

# A row without an active high-level latent has length 0: it is similar to nothing.
_MIN_SQUARED_NORM = 1e-12
_LONGEST_SILENCE = 1 << 30  # tokens; a counter that stops there cannot overflow

Dot = Callable[[Array, Array], Array]


def tsae_loss(
    tsae: TSAE,
    pairs: Pairs,
    silence_Z: Int[Array, " Z"],
    *,
    sae: SAEConfig,
    config: LossConfig,
    alpha: Float[Array, ""] | float,
    compute_dtype: Dtype = "float32",
) -> tuple[Float[Array, ""], LossParts]:
    """Returns the loss of a batch, and its parts, with the counters after it.

    `silence_Z` counts the tokens since each latent fired. `alpha` is traced, so that a
    twin can differ in it; where `config.alpha` is 0 the contrast is left out of the
    program, and AuxK where `config.auxk_coef` is 0. The threshold is not read.

    Raises ValueError where dictionary, configs and pairs do not fit each other.
    """
    pairs, silence_Z = _read(pairs, tsae.width), jnp.asarray(silence_Z, jnp.int32)
    _check_fit(tsae, sae, config)
    dot = functools.partial(matmul, dtype=compute_dtype)
    valid_B1 = pairs.valid[:, None]
    rows = jnp.maximum(pairs.valid.sum(dtype=jnp.int32), 1)
    x_BD = jnp.where(valid_B1, pairs.x, 0.0)
    pre_BZ = jnp.where(valid_B1, _encode(tsae, x_BD, dot=dot), -1.0)
    cut_M1, active = _cut([pre_BZ], rows, sae)
    f_BZ = keep(pre_BZ, cut_M1)

    unit = 1.0 / (tsae.width if config.squared_error == "mean" else 1)
    per_row = unit / rows.astype(jnp.float32)
    errors = _nested_errors(tsae, x_BD, f_BZ, dot=dot)
    squared_G = jnp.stack(
        [jnp.sum(e_BD**2, where=valid_B1) * per_row for e_BD in errors]
    )
    loss = (jnp.asarray(config.group_weights, jnp.float32) * squared_G).sum()

    silence_Z = jnp.minimum(silence_Z, _LONGEST_SILENCE) + rows
    least_Z = jnp.min(pre_BZ, axis=0, where=pre_BZ >= cut_M1, initial=jnp.inf)
    silence_Z = jnp.where(jnp.isfinite(least_Z), 0, silence_Z)
    dead_Z = silence_Z >= config.dead_after
    auxk = contrast = jnp.float32(0.0)
    if config.auxk_coef > 0:
        left_BD = jnp.where(valid_B1, jax.lax.stop_gradient(errors[-1]), 0.0)
        auxk = _auxk(tsae, left_BD, pre_BZ, valid=pairs.valid, dead=dead_Z, dot=dot)
        loss = loss + config.auxk_coef * auxk
    if config.alpha > 0:
        high_BZ = f_BZ[:, : tsae.high]
        partner_BZ = _partner_latents(
            tsae, pairs, cut_M1, sae=sae, config=config, dot=dot
        )
        contrast = _contrast(pairs, high_BZ, partner_BZ, config=config, dot=dot)
        loss = loss + alpha * contrast
    smallest = least_Z.min()
    return loss, LossParts(
        loss=loss,
        reconstruction=squared_G,
        contrast=contrast,
        auxk=auxk,
        silence=silence_Z,
        dead=dead_Z.sum(dtype=jnp.int32),
        cut=jnp.where(jnp.isfinite(smallest), smallest, 0.0),
        active=active,
        rows=rows,
        variance=jnp.sum(_centred(x_BD, pairs.valid) ** 2) * per_row,
    )


def _read(pairs: Pairs, width: int) -> Pairs:
    """Returns the pairs as JAX arrays. Raises ValueError on shapes that do not fit."""
    x_BD, partner_BD = jnp.asarray(pairs.x), jnp.asarray(pairs.partner)
    valid_B = jnp.asarray(pairs.valid, bool)
    if (
        x_BD.ndim != 2
        or x_BD.shape[1] != width
        or partner_BD.shape != x_BD.shape
        or valid_B.shape != x_BD.shape[:1]
    ):
        raise ValueError(
            f"pairs of x {x_BD.shape}, partner {partner_BD.shape} and valid "
            f"{valid_B.shape}; they must be [B, D], [B, D] and [B], with D={width}"
        )
    return Pairs(x=x_BD, partner=partner_BD, valid=valid_B)


def _check_fit(tsae: TSAE, sae: SAEConfig, config: LossConfig) -> None:
    """Raises ValueError where the configs describe another dictionary."""
    if sae.group_sizes != tsae.group_sizes:
        raise ValueError(
            f"sae of latents={sae.latents}, groups={sae.groups} has group sizes "
            f"{sae.group_sizes}, the dictionary {tsae.group_sizes}; make them equal"
        )
    if len(config.group_weights) != len(tsae.group_sizes):
        raise ValueError(
            f"config.group_weights={config.group_weights} does not fit the "
            f"dictionary's groups {tsae.group_sizes}; give one weight a group"
        )


def info_nce(
    z_NRZ: Float[Array, " N R Z"],
    p_NRZ: Float[Array, " N R Z"],
    valid_NR: Bool[Array, " N R"],
    *,
    config: LossConfig,
    dot: Dot,
) -> Float[Array, ""]:
    """Returns how badly tokens and partners find each other in their block, in nats.

    The cross-entropy of each valid row's own partner among its block's valid partners,
    and of each partner's own row among the rows; their mean, or sum. Chance is log R.
    """
    if config.similarity == "cosine":
        z_NRZ, p_NRZ = _unit(z_NRZ), _unit(p_NRZ)
    logit_NRR = dot(z_NRZ, p_NRZ.swapaxes(1, 2)) / config.temperature
    own_NR = jnp.diagonal(logit_NRR, axis1=1, axis2=2)
    both_NRR = valid_NR[:, :, None] & valid_NR[:, None, :]
    logit_NRR = jnp.where(both_NRR, logit_NRR, -1e30)
    nats_NR = sum(
        jax.nn.logsumexp(logit_NRR, axis=axis) - own_NR for axis in (1, 2)
    ) * (0.5 if config.directions == "mean" else 1.0)
    return _mean_row(nats_NR.reshape(-1), valid_NR.reshape(-1))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(
    a: Float[Array, "*N B D"], b: Float[Array, "*N D Z"], dtype: Dtype
) -> Float[Array, "*N B Z"]:
    """Returns a b in float32, its operands, and those of its gradient, in `dtype`."""
    return jnp.matmul(
        a.astype(dtype), b.astype(dtype), preferred_element_type=jnp.float32
    )


def _matmul_forward(a: Array, b: Array, dtype: Dtype) -> tuple[Array, tuple]:
    return matmul(a, b, dtype), (a, b)


def _matmul_backward(dtype: Dtype, operands: tuple, ct: Array) -> tuple[Array, Array]:
    a, b = operands
    return matmul(ct, b.mT, dtype), matmul(a.mT, ct, dtype)


matmul.defvjp(_matmul_forward, _matmul_backward)


def _encode(
    tsae: TSAE, x_BD: Float[Array, " B D"], columns: slice = slice(None), *, dot: Dot
) -> Float[Array, " B Z"]:
    """Returns the preactivations of some columns, by a cheaper gradient.

    The plain formula would send a [B, Z] gradient through the encoder to every row of
    x, only to add the rows up for decoder_bias. Here the bias enters once more, as a
    difference that is 0, and takes its gradient from the sum over rows.
    """
    fixed_1D = jax.lax.stop_gradient(tsae.decoder_bias)[None]
    moved_1D = tsae.decoder_bias[None] - fixed_1D
    encoder_DZ = tsae.encoder[:, columns]
    bias_1Z = tsae.encoder_bias[None, columns] - dot(moved_1D, encoder_DZ)
    return dot(x_BD - fixed_1D, encoder_DZ) + bias_1Z


def _cut(
    parts: list[Float[Array, " B _"]], rows: Int[Array, ""], sae: SAEConfig
) -> tuple[Float[Array, " M 1"], Int[Array, ""]]:
    """Returns the cut of the batch (M = 1), or of each row, and how many it keeps."""
    if sae.activation == "topk":
        cut_B, kept_B = row_cuts(jnp.concatenate(parts, axis=1), sae.k)
        return cut_B[:, None], kept_B.sum()
    count = sae.k * rows
    slack = (sae.count_tolerance * count.astype(jnp.float32)).astype(jnp.int32)
    cut, kept = batch_cut(parts, count, slack=slack)
    return cut[None, None], kept


def _nested_errors(
    tsae: TSAE, x_BD: Float[Array, " B D"], f_BZ: Float[Array, " B Z"], *, dot: Dot
) -> list[Float[Array, " B D"]]:
    """Returns x less its reconstruction from the first group, the first two, ..."""
    errors = [x_BD - tsae.decoder_bias[None]]
    start = 0
    for size in tsae.group_sizes:
        group = slice(start, start + size)
        errors.append(errors[-1] - dot(f_BZ[:, group], tsae.decoder[group]))
        start += size
    return errors[1:]


def _auxk(
    tsae: TSAE,
    left_BD: Float[Array, " B D"],
    pre_BZ: Float[Array, " B Z"],
    *,
    valid: Bool[Array, " B"],
    dead: Bool[Array, " Z"],
    dot: Dot,
) -> Float[Array, ""]:
    """Returns the share of what was left over that dead latents fail to explain.

    Each row uses its D/2 largest dead latents; without dead latents the term is 0.
    """
    silent_BZ = jnp.where(dead[None], pre_BZ, -1.0)
    cut_B, _ = row_cuts(silent_BZ, tsae.width // 2)
    missed_BD = left_BD - dot(keep(silent_BZ, cut_B[:, None]), tsae.decoder)
    missed = jnp.sum(missed_BD**2, where=valid[:, None])
    spread = jnp.sum(_centred(left_BD, valid) ** 2)
    share = missed / jnp.where(spread > 0, spread, 1.0)
    return jnp.where(dead.any() & (spread > 0), share, 0.0)


def _partner_latents(
    tsae: TSAE,
    pairs: Pairs,
    cut_M1: Float[Array, " M 1"],
    *,
    sae: SAEConfig,
    config: LossConfig,
    dot: Dot,
) -> Float[Array, " B Z"]:
    """Returns the partners' high-level latents, by their own cut or by the tokens'.

    The low-level ones matter only for a cut of their own and never have a gradient.
    """
    valid_B1 = pairs.valid[:, None]
    p_BD = jnp.where(valid_B1, pairs.partner, 0.0)
    high, low = slice(tsae.high), slice(tsae.high, None)
    pre_BZ = jnp.where(valid_B1, _encode(tsae, p_BD, high, dot=dot), -1.0)
    if config.partner_sparsity == "own":
        low_BZ = _encode(jax.lax.stop_gradient(tsae), p_BD, low, dot=dot)
        low_BZ = jnp.where(valid_B1, low_BZ, -1.0)
        rows = jnp.maximum(pairs.valid.sum(dtype=jnp.int32), 1)
        cut_M1, _ = _cut([pre_BZ, low_BZ], rows, sae)
    return keep(pre_BZ, cut_M1)


def _contrast(
    pairs: Pairs,
    z_BZ: Float[Array, " B Z"],
    p_BZ: Float[Array, " B Z"],
    *,
    config: LossConfig,
    dot: Dot,
) -> Float[Array, ""]:
    """Returns InfoNCE in blocks, or |z - p|_1 weighted by the tokens' own cosine."""
    if config.contrast == "l1_cosine":
        x_BD, p_BD = (
            jnp.where(pairs.valid[:, None], a, 0.0) for a in (pairs.x, pairs.partner)
        )
        cosine_B = jnp.sum(_unit(x_BD) * _unit(p_BD), axis=1)
        return _mean_row(jnp.abs(z_BZ - p_BZ).sum(axis=1) * cosine_B, pairs.valid)
    rows = z_BZ.shape[0]
    block = (-1, min(config.contrast_rows or rows, rows))
    return info_nce(
        z_BZ.reshape(*block, z_BZ.shape[1]),
        p_BZ.reshape(*block, z_BZ.shape[1]),
        pairs.valid.reshape(block),
        config=config,
        dot=dot,
    )


def _unit(rows: Float[Array, "*N D"]) -> Float[Array, "*N D"]:
    squared = jnp.sum(rows**2, axis=-1, keepdims=True)
    return rows * jax.lax.rsqrt(jnp.maximum(squared, _MIN_SQUARED_NORM))


def _mean_row(
    values_B: Float[Array, " B"], valid_B: Bool[Array, " B"]
) -> Float[Array, ""]:
    rows = jnp.maximum(valid_B.sum(dtype=jnp.int32), 1)
    return jnp.where(valid_B, values_B, 0.0).sum() / rows.astype(jnp.float32)


def _centred(
    x_BD: Float[Array, " B D"], valid_B: Bool[Array, " B"]
) -> Float[Array, " B D"]:
    """Returns the valid rows less their mean; x is 0 in the others, and so is this."""
    rows = jnp.maximum(valid_B.sum(dtype=jnp.int32), 1).astype(jnp.float32)
    mean_1D = x_BD.sum(axis=0, keepdims=True) / rows
    return jnp.where(valid_B[:, None], x_BD - mean_1D, 0.0)
