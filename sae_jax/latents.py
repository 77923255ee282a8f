"""The latents of a batch for the loss: dense, or only the few that each row keeps.

Both have the same values and gradients. `keep_dense` encodes with a gradient. The
sparse latents are first found without one (`find_sparse`), which shows whether the
batch fits; then `keep_sparse` gives them their gradient.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sae_jax.config import Dtype, LossConfig, SAEConfig
from sae_jax.sae import TSAE, matmul_float32
from sae_jax.sparse import (
    SparseLatents,
    decode_kept,
    encode_kept,
    find_kept,
    spread_kept,
    take_rows,
)
from sae_jax.sparsity import (
    apply_threshold,
    batch_threshold,
    estimate_bounds,
    is_large,
    row_thresholds,
)
from sae_jax.types import Pairs

Matmul = Callable[[Array, Array], Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptLatents:
    """A batch's latents as the loss needs them. Made by `keep_dense`, `keep_sparse`.

    `parts` holds each group's contribution to the reconstruction, and `high` the first
    group's latents. `min_kept` is each latent's smallest kept value (infinity if none
    is kept), and `active` the number of kept values.
    """

    parts: list[Float[Array, " B D"]]
    high: Float[Array, " B _"]
    threshold: Float[Array, " M 1"]
    min_kept: Float[Array, " Z"]
    active: Int[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseBatch:
    """The kept latents of a batch and its positives. Made by `find_sparse`.

    It has no gradient. If `fits` is false, the loss uses dense products.
    """

    tokens: SparseLatents
    positives: SparseLatents | None
    threshold: Float[Array, " M 1"]
    positive_threshold: Float[Array, " M 1"]
    active: Int[Array, ""]
    fits: Bool[Array, ""]


def keep_dense(
    tsae: TSAE, x_BD: Array, valid_B: Array, *, sae: SAEConfig, dot: Matmul
) -> KeptLatents:
    """Returns the latents of the valid rows by dense products."""
    pre_BZ = jnp.where(valid_B[:, None], encode(tsae, x_BD, dot=dot), -1.0)
    threshold_M1, active = find_threshold([pre_BZ], count_rows(valid_B), sae)
    f_BZ = apply_threshold(pre_BZ, threshold_M1)
    return KeptLatents(
        parts=_decode_groups(tsae, f_BZ, dot=dot),
        high=f_BZ[:, : tsae.num_high],
        threshold=threshold_M1,
        min_kept=_min_kept(pre_BZ, threshold_M1),
        active=active,
    )


def find_sparse(
    tsae: TSAE,
    pairs: Pairs,
    *,
    sae: SAEConfig,
    config: LossConfig,
    entries: int,
    dot: Matmul,
) -> SparseBatch:
    """Returns the latents that rows keep, with room for `entries` in each row."""
    tsae = jax.lax.stop_gradient(tsae)
    rows, valid_B1 = count_rows(pairs.valid), pairs.valid[:, None]
    x_BD = jnp.where(valid_B1, pairs.x, 0.0)
    fenced = functools.partial(_fenced_product, dot)
    pre_BZ = jnp.where(valid_B1, encode(tsae, x_BD, dot=fenced), -1.0)
    tokens, threshold_M1, active = _find_tokens(pre_BZ, rows, sae=sae, entries=entries)
    positives, positive_threshold_M1, fits = None, threshold_M1, tokens.fits
    if config.alpha > 0:
        pre_BZ, positive_threshold_M1 = _positive_preactivations(
            tsae, pairs, threshold_M1, sae=sae, config=config, dot=fenced
        )
        positives = find_kept(pre_BZ, positive_threshold_M1, entries=entries)
        fits = fits & positives.fits
    return SparseBatch(
        tokens=tokens,
        positives=positives,
        threshold=threshold_M1,
        positive_threshold=positive_threshold_M1,
        active=active,
        fits=fits,
    )


def keep_sparse(
    tsae: TSAE, x_BD: Float[Array, " B D"], found: SparseBatch, *, dot: Matmul
) -> KeptLatents:
    """Returns the latents that `find_sparse` found, with their gradient."""
    tokens, high = found.tokens, tsae.num_high
    value_BK = encode_kept(
        tsae.encoder, tsae.encoder_bias, tsae.decoder_bias, x_BD, tokens
    )
    crowded_MZ = _encode_crowded(tsae, x_BD, tokens, found.threshold, dot=dot)
    part_BGD = decode_kept(
        tsae.decoder, value_BK, tokens.index, group_sizes=tsae.group_sizes
    )
    parts = [
        part_BGD[:, g].at[tokens.crowded].add(part_MD, mode="drop")
        for g, part_MD in enumerate(_decode_groups(tsae, crowded_MZ, dot=dot))
    ]
    smallest_Z = (
        jnp.full(tsae.latents, jnp.inf)
        .at[tokens.index.reshape(-1)]
        .min(jnp.where(tokens.value > 0, tokens.value, jnp.inf).reshape(-1))
    )
    smallest_MZ = jnp.where(crowded_MZ > 0, crowded_MZ, jnp.inf)
    high_BZ = spread_kept(value_BK, tokens.index, latents=high)
    return KeptLatents(
        parts=parts,
        high=high_BZ.at[tokens.crowded].add(crowded_MZ[:, :high], mode="drop"),
        threshold=found.threshold,
        min_kept=jnp.minimum(
            smallest_Z, jax.lax.stop_gradient(smallest_MZ).min(axis=0)
        ),
        active=found.active,
    )


def keep_positives(
    tsae: TSAE,
    pairs: Pairs,
    threshold_M1: Float[Array, " M 1"],
    found: SparseBatch | None,
    *,
    sae: SAEConfig,
    config: LossConfig,
    dot: Matmul,
) -> Float[Array, " B _"]:
    """Returns the positives' high-level latents, by their own threshold or the tokens'.

    Their low-level latents matter only for finding their own threshold and have no
    gradient.
    """
    if found is None or found.positives is None:
        pre_BZ, threshold_M1 = _positive_preactivations(
            tsae, pairs, threshold_M1, sae=sae, config=config, dot=dot
        )
        return apply_threshold(pre_BZ, threshold_M1)
    kept, high = found.positives, slice(tsae.num_high)
    p_BD = jnp.where(pairs.valid[:, None], pairs.positive, 0.0)
    encoder_DZ, bias_Z = tsae.encoder[:, high], tsae.encoder_bias[high]
    value_BK = encode_kept(encoder_DZ, bias_Z, tsae.decoder_bias, p_BD, kept)
    f_BZ = spread_kept(value_BK, kept.index, latents=tsae.num_high)
    crowded_MZ = _encode_crowded(
        tsae, p_BD, kept, found.positive_threshold, high, dot=dot
    )
    return f_BZ.at[kept.crowded].add(crowded_MZ, mode="drop")


def encode(
    tsae: TSAE,
    x_BD: Float[Array, " B D"],
    columns: slice | Int[Array, " Z"] = slice(None),
    *,
    dot: Matmul,
) -> Float[Array, " B Z"]:
    """Returns the preactivations of some latents, with a cheap gradient of the bias.

    The plain formula would send a [B, Z] gradient through the encoder to every row of
    x, only to sum the rows for decoder_bias. Here x is centered by a constant. The bias
    enters again as a difference that is 0 but carries the whole gradient.
    """
    constant_1D = jax.lax.stop_gradient(tsae.decoder_bias)[None]
    difference_1D = tsae.decoder_bias[None] - constant_1D
    encoder_DZ = tsae.encoder[:, columns]
    bias_1Z = tsae.encoder_bias[columns][None] - dot(difference_1D, encoder_DZ)
    return dot(x_BD - constant_1D, encoder_DZ) + bias_1Z


def find_threshold(
    parts: list[Float[Array, " B _"]], rows: Int[Array, ""], sae: SAEConfig
) -> tuple[Float[Array, " M 1"], Int[Array, ""]]:
    """Returns the threshold of the batch (M = 1) or each row, and the number kept."""
    if sae.activation == "topk":
        threshold_B, kept_B = row_thresholds(jnp.concatenate(parts, axis=1), sae.k)
        return threshold_B[:, None], kept_B.sum()
    count = sae.k * rows
    slack = (sae.topk_tolerance * count.astype(jnp.float32)).astype(jnp.int32)
    threshold, kept = batch_threshold(parts, count, max_excess=slack)
    return threshold[None, None], kept


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(
    a: Float[Array, "*N B D"], b: Float[Array, "*N D Z"], dtype: Dtype
) -> Float[Array, "*N B Z"]:
    """Returns the product a b in float32; its operands are cast to `dtype`.

    The operands of the gradient's products are cast, too. Float32 operands are not
    rounded any further on any device.

    >>> a = jnp.array([[1.0 + 2**-10]])  # bfloat16 rounds it to 1
    >>> matmul(a, a, "bfloat16").dtype, float(matmul(a, a, "bfloat16")[0, 0])
    (dtype('float32'), 1.0)
    """
    if dtype == "float32":
        return matmul_float32(a.astype(dtype), b.astype(dtype))
    return jnp.matmul(
        a.astype(dtype), b.astype(dtype), preferred_element_type=jnp.float32
    )


def _matmul_forward(a: Array, b: Array, dtype: Dtype) -> tuple[Array, tuple]:
    return matmul(a, b, dtype), (a, b)


def _matmul_backward(dtype: Dtype, operands: tuple, ct: Array) -> tuple[Array, Array]:
    a, b = operands
    return matmul(ct, b.mT, dtype), matmul(a.mT, ct, dtype)


matmul.defvjp(_matmul_forward, _matmul_backward)


def _fenced_product(dot: Matmul, a: Array, b: Array) -> Array:
    """Returns a b behind a barrier, so that it is materialized once.

    The operations that read it fuse the bias and the comparison into their own loops.
    """
    return jax.lax.optimization_barrier(dot(a, b))


def count_rows(valid_B: Bool[Array, " B"]) -> Int[Array, ""]:
    """Returns the number of valid rows, at least 1 because sums are divided by it."""
    return jnp.maximum(valid_B.sum(dtype=jnp.int32), 1)


def _find_tokens(
    pre_BZ: Float[Array, " B Z"], rows: Int[Array, ""], *, sae: SAEConfig, entries: int
) -> tuple[SparseLatents, Float[Array, " M 1"], Int[Array, ""]]:
    """Returns the kept latents of the rows, the threshold, and the number kept.

    In a large batch it first finds candidates above a bound that is most likely below
    the threshold, and then searches for the threshold only among these.
    """
    if sae.activation == "topk" or not is_large(pre_BZ.size):
        threshold_M1, active = find_threshold([pre_BZ], rows, sae)
        kept = find_kept(pre_BZ, threshold_M1, entries=entries)
        return kept, threshold_M1, active
    bound = estimate_bounds([pre_BZ], sae.k * rows)[0]
    kept = find_kept(pre_BZ, bound[None, None], entries=entries)
    parts = [kept.value, take_rows(pre_BZ, kept.crowded)]
    threshold_M1, active = find_threshold(parts, rows, sae)
    value_BK = apply_threshold(kept.value, threshold_M1)
    fits = kept.fits & (active >= sae.k * rows)
    return dataclasses.replace(kept, value=value_BK, fits=fits), threshold_M1, active


def _encode_crowded(
    tsae: TSAE,
    x_BD: Float[Array, " B D"],
    kept: SparseLatents,
    threshold_M1: Float[Array, " M 1"],
    columns: slice = slice(None),
    *,
    dot: Matmul,
) -> Float[Array, " M Z"]:
    """Returns the latents of the crowded rows; unused places hold zeros."""
    if len(threshold_M1) > 1:
        threshold_M1 = take_rows(threshold_M1, kept.crowded)
    used_M1 = (kept.crowded < len(x_BD))[:, None]
    pre_MZ = encode(tsae, take_rows(x_BD, kept.crowded), columns, dot=dot)
    return apply_threshold(jnp.where(used_M1, pre_MZ, -1.0), threshold_M1)


def _positive_preactivations(
    tsae: TSAE,
    pairs: Pairs,
    threshold_M1: Float[Array, " M 1"],
    *,
    sae: SAEConfig,
    config: LossConfig,
    dot: Matmul,
) -> tuple[Float[Array, " B _"], Float[Array, " M 1"]]:
    """Returns the positives' high-level preactivations, and their threshold."""
    valid_B1 = pairs.valid[:, None]
    p_BD = jnp.where(valid_B1, pairs.positive, 0.0)
    high, low = slice(tsae.num_high), slice(tsae.num_high, None)
    pre_BZ = jnp.where(valid_B1, encode(tsae, p_BD, high, dot=dot), -1.0)
    if config.positive_sparsity == "own":
        low_BZ = encode(jax.lax.stop_gradient(tsae), p_BD, low, dot=dot)
        low_BZ = jnp.where(valid_B1, low_BZ, -1.0)
        threshold_M1, _ = find_threshold([pre_BZ, low_BZ], count_rows(pairs.valid), sae)
    return pre_BZ, threshold_M1


def _decode_groups(
    tsae: TSAE, f_BZ: Float[Array, " B Z"], *, dot: Matmul
) -> list[Float[Array, " B D"]]:
    """Returns each group's contribution to the reconstruction."""
    parts, start = [], 0
    for size in tsae.group_sizes:
        group = slice(start, start + size)
        parts.append(dot(f_BZ[:, group], tsae.decoder[group]))
        start += size
    return parts


def _min_kept(
    pre_BZ: Float[Array, " B Z"], threshold_M1: Float[Array, " M 1"]
) -> Float[Array, " Z"]:
    return jnp.min(pre_BZ, axis=0, where=pre_BZ >= threshold_M1, initial=jnp.inf)
