"""The loss of a temporal sparse autoencoder.

    f = the k B largest preactivations of the batch,  xhat_g = groups 0..g of f, decoded
    L = sum_g w_g |x - xhat_g|^2  +  auxk_coef AuxK  +  alpha contrast(f_high, p_high)

p are the positives' latents. The contrast (InfoNCE) makes the high-level latents of a
token identify its own positive among the positives of other tokens. AuxK trains dead
latents on the error that the other latents leave. References:
  T-SAE      https://arxiv.org/abs/2511.05541
  Matryoshka https://arxiv.org/abs/2503.17547
  AuxK       https://arxiv.org/abs/2406.04093 (appendix A.2)

Where this differs from the T-SAE authors' code:
1. Padding rows do not affect any term.
2. InfoNCE may run over blocks of `contrast_block_size` pairs, because over a whole
   large batch it costs more than everything else. configs/tsae_reference.py uses the
   whole batch.
3. Positives may share the tokens' threshold (`positive_sparsity`); then only their
   high-level latents are computed. In configs/tsae_reference.py they have their own.
4. Nested errors are summed, not averaged, so for two groups a weight is half of theirs.
"""

import functools
import itertools
import operator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sae_jax.config import Dtype, LossConfig, SAEConfig
from sae_jax.latents import (
    Matmul,
    SparseBatch,
    count_rows,
    encode,
    keep_dense,
    keep_positives,
    keep_sparse,
    matmul,
)
from sae_jax.sae import TSAE
from sae_jax.sparsity import apply_threshold, row_thresholds
from sae_jax.types import LossAux, Pairs

# A row without an active high-level latent has length 0 and similarity 0 to every row.
_MIN_SQUARED_NORM = 1e-12
_MAX_TOKENS_SINCE_FIRED = 1 << 30  # counters stop here, so they cannot overflow


def tsae_loss(
    tsae: TSAE,
    pairs: Pairs,
    tokens_since_fired: Int[Array, " Z"],
    *,
    sae: SAEConfig,
    config: LossConfig,
    alpha: Float[Array, ""] | float,
    compute_dtype: Dtype = "float32",
    found: SparseBatch | None = None,
    max_dead: int | None = None,
) -> tuple[Float[Array, ""], LossAux]:
    """Returns the training loss of a batch, and its parts with the updated counters.

    `tokens_since_fired` counts the tokens since each latent fired. `alpha` is traced,
    so that replicas can differ in it. The contrast is left out of the program if
    `config.alpha` is 0, and AuxK if `config.auxk_coef` is 0. The inference threshold is
    not used. Raises ValueError if autoencoder, configs and pairs do not fit.

    With `found` (the result of `find_sparse` for this batch, if it fits) the products
    are sparse. With `max_dead`, AuxK computes only that many latents instead of all, so
    the caller must know that no more are dead.

    >>> tsae = TSAE.init(0, width=8, latents=32, group_sizes=(6, 26))
    >>> x = jax.random.normal(jax.random.key(1), (5, 8))  # activations of five tokens
    >>> loss, aux = tsae_loss(
    ...     tsae,
    ...     Pairs(x=x[1:], positive=x[:-1], valid=jnp.ones(4, bool)),
    ...     jnp.zeros(32, jnp.int32),
    ...     sae=SAEConfig(latents=32, k=3),
    ...     config=LossConfig(),
    ...     alpha=0.1,
    ... )
    >>> int(aux.num_active), aux.reconstruction.shape  # 3 a token; one error a group
    (12, (2,))
    """
    pairs = _as_arrays(pairs, tsae.width)
    tokens_since_fired = jnp.asarray(tokens_since_fired, jnp.int32)
    _check_configs_fit(tsae, sae, config)
    return _sum_terms(
        tsae,
        pairs,
        tokens_since_fired,
        sae=sae,
        config=config,
        alpha=alpha,
        found=found,
        max_dead=max_dead,
        dot=functools.partial(matmul, dtype=compute_dtype),
    )


def _sum_terms(
    tsae: TSAE,
    pairs: Pairs,
    tokens_since_fired: Int[Array, " Z"],
    *,
    sae: SAEConfig,
    config: LossConfig,
    alpha: Float[Array, ""] | float,
    found: SparseBatch | None,
    max_dead: int | None,
    dot: Matmul,
) -> tuple[Float[Array, ""], LossAux]:
    """Returns the sum of the loss's terms, and the terms (see `tsae_loss`)."""
    valid_B, valid_B1 = pairs.valid, pairs.valid[:, None]
    rows = count_rows(valid_B)
    x_BD = jnp.where(valid_B1, pairs.x, 0.0)
    if found is None:
        kept = keep_dense(tsae, x_BD, valid_B, sae=sae, dot=dot)
    else:
        kept = keep_sparse(tsae, x_BD, found, dot=dot)

    per_row = _weight_of_row(rows, width=tsae.width, reduction=config.mse_reduction)
    _, *errors = itertools.accumulate(
        kept.parts, operator.sub, initial=x_BD - tsae.decoder_bias[None]
    )
    squared_G = jnp.stack(
        [jnp.sum(e_BD**2, where=valid_B1) * per_row for e_BD in errors]
    )
    loss = (jnp.asarray(config.group_weights, jnp.float32) * squared_G).sum()
    tokens_since_fired = _advance_counters(tokens_since_fired, kept.min_kept, rows)
    dead_Z = tokens_since_fired >= config.dead_after_tokens
    auxk = contrast = jnp.float32(0.0)
    if config.auxk_coef > 0:
        residual_BD = jnp.where(valid_B1, jax.lax.stop_gradient(errors[-1]), 0.0)
        auxk = _auxk(tsae, x_BD, residual_BD, dead_Z, max_dead, valid=valid_B, dot=dot)
        loss = loss + config.auxk_coef * auxk
    if config.alpha > 0:
        positive_BZ = keep_positives(
            tsae, pairs, kept.threshold, found, sae=sae, config=config, dot=dot
        )
        contrast = _contrast(pairs, kept.high, positive_BZ, config=config, dot=dot)
        loss = loss + alpha * contrast
    smallest = kept.min_kept.min()
    return loss, LossAux(
        loss=loss,
        reconstruction=squared_G,
        contrast=contrast,
        auxk=auxk,
        tokens_since_fired=tokens_since_fired,
        num_dead=dead_Z.sum(dtype=jnp.int32),
        min_kept=jnp.where(jnp.isfinite(smallest), smallest, 0.0),
        num_active=kept.active,
        num_rows=rows,
        variance=jnp.sum(_center(x_BD, valid_B) ** 2) * per_row,
    )


def _weight_of_row(
    rows: Int[Array, ""], *, width: int, reduction: str
) -> Float[Array, ""]:
    """Returns the weight of a row's squared error: 1 / rows, or 1 / (rows D)."""
    unit = 1.0 / (width if reduction == "mean" else 1)
    return unit / rows.astype(jnp.float32)


def _advance_counters(
    tokens_since_fired: Int[Array, " Z"],
    min_kept_Z: Float[Array, " Z"],
    rows: Int[Array, ""],
) -> Int[Array, " Z"]:
    """Returns the counters after the batch: 0 for latents that were kept."""
    grown_Z = jnp.minimum(tokens_since_fired, _MAX_TOKENS_SINCE_FIRED) + rows
    return jnp.where(jnp.isfinite(min_kept_Z), 0, grown_Z)


def _as_arrays(pairs: Pairs, width: int) -> Pairs:
    """Returns the pairs as JAX arrays. Raises ValueError if shapes do not fit."""
    x_BD, positive_BD = jnp.asarray(pairs.x), jnp.asarray(pairs.positive)
    valid_B = jnp.asarray(pairs.valid, bool)
    if (
        x_BD.ndim != 2
        or x_BD.shape[1] != width
        or positive_BD.shape != x_BD.shape
        or valid_B.shape != x_BD.shape[:1]
    ):
        raise ValueError(
            f"pairs of x {x_BD.shape}, positive {positive_BD.shape} and valid "
            f"{valid_B.shape}; they must be [B, D], [B, D] and [B], with D={width}"
        )
    return Pairs(x=x_BD, positive=positive_BD, valid=valid_B)


def _check_configs_fit(tsae: TSAE, sae: SAEConfig, config: LossConfig) -> None:
    """Raises ValueError if the configs describe another autoencoder."""
    if sae.group_sizes != tsae.group_sizes:
        raise ValueError(
            f"sae of latents={sae.latents}, "
            f"group_fractions={sae.group_fractions} has group sizes "
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
    dot: Matmul,
) -> Float[Array, ""]:
    """Returns InfoNCE in nats, the mean over the valid rows of N blocks of R pairs.

    A row has two cross-entropies: of its positive among its block's valid positives,
    and of the row among the valid rows, given its positive. They are averaged or added
    (`infonce_reduction`). Guessing costs log R.

    >>> z = jnp.zeros((1, 4, 3))  # four rows that nothing tells apart
    >>> dot = functools.partial(matmul, dtype="float32")
    >>> nats = info_nce(z, z, jnp.ones((1, 4), bool), config=LossConfig(), dot=dot)
    >>> round(float(nats), 4)  # log 4
    1.3863
    """
    if config.similarity == "cosine":
        z_NRZ, p_NRZ = _unit_rows(z_NRZ), _unit_rows(p_NRZ)
    logit_NRR = dot(z_NRZ, p_NRZ.swapaxes(1, 2)) / config.temperature
    own_NR = jnp.diagonal(logit_NRR, axis1=1, axis2=2)
    both_NRR = valid_NR[:, :, None] & valid_NR[:, None, :]
    logit_NRR = jnp.where(both_NRR, logit_NRR, -1e30)
    nats_NR = sum(
        jax.nn.logsumexp(logit_NRR, axis=axis) - own_NR for axis in (1, 2)
    ) * (0.5 if config.infonce_reduction == "mean" else 1.0)
    return _masked_mean(nats_NR.reshape(-1), valid_NR.reshape(-1))


def _auxk(
    tsae: TSAE,
    x_BD: Float[Array, " B D"],
    residual_BD: Float[Array, " B D"],
    dead_Z: Bool[Array, " Z"],
    max_dead: int | None,
    *,
    valid: Bool[Array, " B"],
    dot: Matmul,
) -> Float[Array, ""]:
    """Returns the share of the residual's variance that dead latents do not explain.

    Each row uses its D/2 largest dead latents. Without dead latents the term is 0.
    """
    columns: slice | Array = slice(None)
    taken_Z, decoder_ZD = dead_Z, tsae.decoder
    if max_dead is not None:
        columns = jnp.nonzero(dead_Z, size=max_dead, fill_value=0)[0]
        taken_Z = jnp.arange(max_dead) < dead_Z.sum()
        decoder_ZD = tsae.decoder[columns]
    pre_BZ = encode(tsae, x_BD, columns, dot=dot)
    dead_BZ = jnp.where(valid[:, None] & taken_Z[None], pre_BZ, -1.0)
    threshold_B, _ = row_thresholds(dead_BZ, tsae.width // 2)
    missed_BD = residual_BD - dot(
        apply_threshold(dead_BZ, threshold_B[:, None]), decoder_ZD
    )
    missed = jnp.sum(missed_BD**2, where=valid[:, None])
    spread = jnp.sum(_center(residual_BD, valid) ** 2)
    share = missed / jnp.where(spread > 0, spread, 1.0)
    return jnp.where(dead_Z.any() & (spread > 0), share, 0.0)


def _contrast(
    pairs: Pairs,
    z_BZ: Float[Array, " B Z"],
    p_BZ: Float[Array, " B Z"],
    *,
    config: LossConfig,
    dot: Matmul,
) -> Float[Array, ""]:
    """Returns InfoNCE over blocks, or |z - p|_1 weighted by the pair's cosine."""
    if config.contrast == "l1_cosine":
        x_BD, p_BD = (
            jnp.where(pairs.valid[:, None], a, 0.0) for a in (pairs.x, pairs.positive)
        )
        cosine_B = jnp.sum(_unit_rows(x_BD) * _unit_rows(p_BD), axis=1)
        return _masked_mean(jnp.abs(z_BZ - p_BZ).sum(axis=1) * cosine_B, pairs.valid)
    rows = z_BZ.shape[0]
    block = (-1, min(config.contrast_block_size or rows, rows))
    return info_nce(
        z_BZ.reshape(*block, z_BZ.shape[1]),
        p_BZ.reshape(*block, z_BZ.shape[1]),
        pairs.valid.reshape(block),
        config=config,
        dot=dot,
    )


def _unit_rows(rows: Float[Array, "*N D"]) -> Float[Array, "*N D"]:
    squared = jnp.sum(rows**2, axis=-1, keepdims=True)
    return rows * jax.lax.rsqrt(jnp.maximum(squared, _MIN_SQUARED_NORM))


def _masked_mean(
    values_B: Float[Array, " B"], valid_B: Bool[Array, " B"]
) -> Float[Array, ""]:
    rows = count_rows(valid_B)
    return jnp.where(valid_B, values_B, 0.0).sum() / rows.astype(jnp.float32)


def _center(
    x_BD: Float[Array, " B D"], valid_B: Bool[Array, " B"]
) -> Float[Array, " B D"]:
    """Returns the valid rows minus their mean, and 0 in the others."""
    rows = count_rows(valid_B).astype(jnp.float32)
    mean_1D = x_BD.sum(axis=0, keepdims=True) / rows
    return jnp.where(valid_B[:, None], x_BD - mean_1D, 0.0)
