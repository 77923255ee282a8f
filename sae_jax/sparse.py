"""Products with sparse latents, by gathering and scattering instead of dense matmuls.

Only the encoder's forward product is dense. The kept latents are found in one pass:
bits of 32 latents are packed into a word, and the j-th set bit of a row is its j-th
entry. Decoding gathers decoder rows, and the gradients of both matrices are added up
row by row. A row that keeps more than K entries is crowded. A few crowded rows use
dense products; a batch with more uses the dense loss (`SparseLatents.fits`). So values
and gradients equal the dense ones.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sae_jax.sae import matmul_float32

_WORD_BITS = 32
_BLOCK_ROWS = 16  # rows whose decoder rows are gathered together, to stay in the cache
ENTRIES_PER_K = 3  # room of a row, in multiples of the mean number of kept latents
_ROWS_PER_CROWDED = 32  # at most one row in this many may be crowded
# A gathered entry costs more than an entry of a dense product. So with fewer latents
# per entry of room than this, the dense loss is faster.
MIN_LATENTS_PER_ENTRY = 16


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseLatents:
    """The latents that each row keeps. Made by `find_kept`, without any gradient.

    `index` ascends within a row. `value` is 0 in empty places and in all of a crowded
    row. `crowded` holds the numbers of crowded rows, padded with B.
    """

    index: Int[Array, " B K"]
    value: Float[Array, " B K"]
    crowded: Int[Array, " M"]
    fits: Bool[Array, ""]


def find_kept(
    pre_BZ: Float[Array, " B Z"], threshold_M1: Float[Array, " M 1"], *, entries: int
) -> SparseLatents:
    """Returns the entries at or above the positive threshold (one, or one per row).

    >>> kept = find_kept(jnp.eye(2, 32), jnp.ones((1, 1)), entries=1)
    >>> kept.index.tolist(), kept.value.tolist(), bool(kept.fits)
    ([[0], [1]], [[1.0], [1.0]], True)
    """
    rows, latents = pre_BZ.shape
    word_BW = _pack_bits(pre_BZ >= threshold_M1)
    set_BW = jax.lax.population_count(word_BW).astype(jnp.int32)
    last_BW = jnp.cumsum(set_BW, axis=1)  # entries up to and including each word
    place_1K = jnp.arange(entries, dtype=jnp.int32)[None]
    at_BK = jnp.minimum(_count_at_most(last_BW, place_1K), word_BW.shape[1] - 1)
    before_BK = jnp.take_along_axis(last_BW - set_BW, at_BK, axis=1)
    bit_BK = _find_set_bit(
        jnp.take_along_axis(word_BW, at_BK, axis=1), place_1K - before_BK
    )
    count_B1 = last_BW[:, -1:]
    crowded_B = count_B1[:, 0] > entries
    held_BK = (place_1K < count_B1) & ~crowded_B[:, None]
    index_BK = jnp.where(held_BK, _WORD_BITS * at_BK + bit_BK, latents - 1)
    value_BK = jnp.take_along_axis(pre_BZ, index_BK, axis=1)
    room = math.ceil(rows / _ROWS_PER_CROWDED)
    return SparseLatents(
        index=index_BK,
        value=jnp.where(held_BK, value_BK, 0.0),
        crowded=jnp.nonzero(crowded_B, size=room, fill_value=rows)[0],
        fits=crowded_B.sum() <= room,
    )


def take_rows(x: Float[Array, " B X"], rows: Int[Array, " M"]) -> Float[Array, " M X"]:
    """Returns rows by number; the number B gives zeros."""
    return x.at[rows].get(mode="fill", fill_value=0)


@jax.custom_vjp
def encode_kept(
    encoder_DZ: Float[Array, " D Z"],
    encoder_bias_Z: Float[Array, " Z"],
    decoder_bias_D: Float[Array, " D"],
    x_BD: Float[Array, " B D"],
    kept: SparseLatents,
) -> Float[Array, " B K"]:
    """Returns the kept values, with the gradient of the encoder and both biases.

    x gets no gradient.
    """
    del encoder_DZ, encoder_bias_Z, decoder_bias_D, x_BD
    return kept.value


def _encode_forward(
    encoder_DZ: Array, bias_Z: Array, bias_D: Array, x_BD: Array, kept: SparseLatents
) -> tuple:
    return kept.value, (encoder_DZ, bias_Z, x_BD - bias_D[None], kept)


def _encode_backward(residuals: tuple, ct_BK: Array) -> tuple:
    encoder_DZ, bias_Z, centered_BD, kept = residuals
    ct_BK = jnp.where(kept.value > 0, ct_BK, 0.0)
    ct_Z = jnp.zeros_like(bias_Z).at[kept.index.reshape(-1)].add(ct_BK.reshape(-1))
    own_BK = jnp.zeros_like(kept.index)
    ct_ZD = _add_outer(ct_BK, kept.index, own_BK, centered_BD[:, None], len(bias_Z))
    ct_D = -matmul_float32(encoder_DZ, ct_Z[:, None])[:, 0]
    return ct_ZD.T, ct_Z, ct_D, None, None


encode_kept.defvjp(_encode_forward, _encode_backward)


def decode_kept(
    decoder_ZD: Float[Array, " Z D"],
    value_BK: Float[Array, " B K"],
    index_BK: Int[Array, " B K"],
    *,
    group_sizes: tuple[int, ...],
) -> Float[Array, " B G D"]:
    """Returns the contribution of each group of latents to a row's reconstruction.

    >>> decoder = jnp.arange(8.0).reshape(4, 2)
    >>> value, index = jnp.array([[2.0, 3.0]]), jnp.array([[0, 3]])
    >>> decode_kept(decoder, value, index, group_sizes=(1, 3)).tolist()
    [[[0.0, 2.0], [18.0, 21.0]]]
    """
    starts_G = np.cumsum((0, *group_sizes[:-1]), dtype=np.int32)
    group_BK = jnp.sum(
        index_BK[..., None] >= starts_G[None, None, 1:], axis=-1, dtype=jnp.int32
    )
    return _decode(decoder_ZD, value_BK, index_BK, group_BK, len(group_sizes))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _decode(
    decoder_ZD: Array, value_BK: Array, index_BK: Array, group_BK: Array, groups: int
) -> Array:
    """Sums value times decoder row over the entries of each group: [B, G, D]."""

    def decode(_: None, block: tuple[Array, ...]) -> tuple[None, Array]:
        value_RK, index_RK, group_RK = block
        row_RKD = decoder_ZD[index_RK]
        parts = [
            _einsum("rk,rkd->rd", jnp.where(group_RK == g, value_RK, 0.0), row_RKD)
            for g in range(groups)
        ]
        return None, jnp.stack(parts, axis=1)

    blocks = _in_blocks(value_BK, index_BK, group_BK)
    part_NRGD = jax.lax.scan(decode, None, blocks)[1]
    return part_NRGD.reshape(-1, *part_NRGD.shape[2:])


def _decode_forward(*operands: Array) -> tuple[Array, tuple]:
    return _decode(*operands), operands[:-1]


def _decode_backward(groups: int, operands: tuple, ct_BGD: Array) -> tuple:
    decoder_ZD, value_BK, index_BK, group_BK = operands

    def value_gradient(_: None, block: tuple[Array, ...]) -> tuple[None, Array]:
        ct_RGD, index_RK, group_RK = block
        row_RKD = decoder_ZD[index_RK]
        own_RK = jnp.zeros(index_RK.shape, jnp.float32)
        for g in range(groups):
            all_RK = _einsum("rd,rkd->rk", ct_RGD[:, g], row_RKD)
            own_RK = jnp.where(group_RK == g, all_RK, own_RK)
        return None, own_RK

    blocks = _in_blocks(ct_BGD, index_BK, group_BK)
    value_NRK = jax.lax.scan(value_gradient, None, blocks)[1]
    decoder = _add_outer(value_BK, index_BK, group_BK, ct_BGD, len(decoder_ZD))
    return decoder, value_NRK.reshape(value_BK.shape), None, None


_decode.defvjp(_decode_forward, _decode_backward)


def spread_kept(
    value_BK: Float[Array, " B K"], index_BK: Int[Array, " B K"], *, latents: int
) -> Float[Array, " B Z"]:
    """Returns the first `latents` latents as dense rows.

    >>> value, index = jnp.array([[2.0, 3.0]]), jnp.array([[0, 3]])
    >>> spread_kept(value, index, latents=2).tolist()
    [[2.0, 0.0]]
    """
    rows = jnp.arange(len(value_BK))[:, None]
    f_BZ = jnp.zeros((len(value_BK), latents), value_BK.dtype)
    return f_BZ.at[rows, index_BK].add(value_BK, mode="drop")


def _add_outer(
    value_BK: Array, index_BK: Array, group_BK: Array, row_BGD: Array, latents: int
) -> Float[Array, " Z D"]:
    """Adds up value times the row of its group, by index: [Z, D]."""

    def add(sum_ZD: Array, block: tuple[Array, ...]) -> tuple[Array, None]:
        value_RK, index_RK, group_RK, row_RGD = block
        row_RKD = jnp.take_along_axis(row_RGD, group_RK[..., None], axis=1)
        update_RKD = value_RK[..., None] * row_RKD
        update_XD = update_RKD.reshape(-1, row_RGD.shape[-1])
        return sum_ZD.at[index_RK.reshape(-1)].add(update_XD), None

    start_ZD = jnp.zeros((latents, row_BGD.shape[-1]), jnp.float32)
    blocks = _in_blocks(value_BK, index_BK, group_BK, row_BGD)
    return jax.lax.scan(add, start_ZD, blocks)[0]


def _in_blocks(*arrays: Array) -> tuple[Array, ...]:
    rows = math.gcd(len(arrays[0]), _BLOCK_ROWS)
    return tuple(array.reshape(-1, rows, *array.shape[1:]) for array in arrays)


_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def _pack_bits(bit_BZ: Bool[Array, " B Z"]) -> Array:
    """Packs 32 latents into a uint32 word, the first in its lowest bit: [B, W]."""
    bit_BZ = jnp.pad(bit_BZ, ((0, 0), (0, -bit_BZ.shape[1] % _WORD_BITS)))
    shift_11X = jnp.arange(_WORD_BITS, dtype=jnp.uint32)[None, None]
    bit_BWX = bit_BZ.reshape(len(bit_BZ), -1, _WORD_BITS).astype(jnp.uint32)
    return jnp.sum(bit_BWX << shift_11X, axis=-1, dtype=jnp.uint32)


def _count_at_most(
    sorted_BW: Int[Array, " B W"], bound_1K: Int[Array, " 1 K"]
) -> Int[Array, " B K"]:
    """Returns how many entries of each ascending row are at most the bound."""
    rows, words = sorted_BW.shape
    count_BK = jnp.zeros((rows, bound_1K.shape[1]), jnp.int32)
    for step in (1 << power for power in reversed(range(words.bit_length()))):
        next_BK = count_BK + step
        last_BK = jnp.take_along_axis(
            sorted_BW, jnp.minimum(next_BK, words) - 1, axis=1
        )
        fits_BK = (next_BK <= words) & (last_BK <= bound_1K)
        count_BK = jnp.where(fits_BK, next_BK, count_BK)
    return count_BK


def _find_set_bit(word_BK: Array, rank_BK: Int[Array, " B K"]) -> Int[Array, " B K"]:
    """Returns the position of the set bit with this rank in each word, by halving."""
    position_BK = jnp.zeros_like(rank_BK)
    for width in (16, 8, 4, 2, 1):
        low_BK = (word_BK >> position_BK.astype(jnp.uint32)) & jnp.uint32(
            (1 << width) - 1
        )
        below_BK = jax.lax.population_count(low_BK).astype(jnp.int32)
        above_BK = rank_BK >= below_BK
        rank_BK = jnp.where(above_BK, rank_BK - below_BK, rank_BK)
        position_BK = jnp.where(above_BK, position_BK + width, position_BK)
    return position_BK
