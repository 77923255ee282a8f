"""Sums of every latent of an autoencoder over tokens, by band or by text.

They are computed inside the update, or on reference texts; `sae_probe` writes them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.mesh import with_logical_constraint
from rlvr_jax.learn.rfgo import activation_mask
from rlvr_jax.types import BANDS, Array, Batch
from sae_jax.sae import TSAE
from sae_jax.stats.feature_statistics import (
    FeatureStatistics,
    FeatureTable,
    RowKey,
    sequence_statistics,
)

# The rows for a step's completions: the bands, and problems that are not tracked.
BAND_ROWS = (*BANDS, "")

# Limits how many tokens are encoded at once: this many floats take 64 MB.
_MAX_LATENT_ELEMENTS = 1 << 24


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainedVariance:
    """Sums that give the fraction of variance explained; they add up over tokens."""

    tokens: Float[Array, " G"]
    sum_x: Float[Array, " G D"]
    sum_squares: Float[Array, " G"]
    sum_squared_error: Float[Array, " G"]

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        return jax.tree.map(lambda a, b: a + b, self, other)

    def segment_sum(self, segment_ids: Int[Array, " S"], num_segments: int) -> Self:
        """Returns row sums: row s goes to row `segment_ids[s]`; -1 is left out."""
        return jax.tree.map(
            lambda a: jax.ops.segment_sum(a, segment_ids, num_segments), self
        )

    def fve(self) -> Float[np.ndarray, " G"]:
        """Returns 1 - sum |x - xhat|^2 / sum |x - mean|^2; NaN without tokens."""
        host = jax.tree.map(lambda a: np.asarray(a, np.float64), jax.device_get(self))
        counts = np.maximum(host.tokens, 1.0)
        scatter = host.sum_squares - (host.sum_x**2).sum(axis=1) / counts
        empty = (host.tokens < 2) | (scatter <= 0)
        return np.where(
            empty, np.nan, 1 - host.sum_squared_error / np.where(empty, 1, scatter)
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpliceSums:
    """Sums over each text's tokens, in nats, by arm: clean, spliced, mean-ablated.

    `kl` is KL(clean || arm). Made by `splice.measure_texts`.
    """

    cross_entropy: Float[Array, " 3 F"]
    kl: Float[Array, " 3 F"]

    def per_token(self, texts: Any, tokens: int) -> dict[str, float | None]:
        """Returns the cost of the splice over some texts, in nats per token.

        The cost of mean ablation is its baseline. `splice_cost` is relative to the
        clean cross-entropy; it is None if that is 0.
        """
        nats, kl = (
            np.asarray(sums, np.float64)[:, texts].sum(axis=1) / tokens
            for sums in (self.cross_entropy, self.kl)
        )
        return {
            "cross_entropy": float(nats[0]),
            "splice_nats": float(nats[1] - nats[0]),
            "splice_cost": float(nats[1] / nats[0] - 1) if nats[0] > 0 else None,
            "splice_kl": float(kl[1]),
            "mean_ablation_nats": float(nats[2] - nats[0]),
            "mean_ablation_kl": float(kl[2]),
        }


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentSums:
    """Sums of all latents, by row. Computed inside the update or on reference texts."""

    statistics: FeatureStatistics
    explained_variance: ExplainedVariance

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        return type(self)(
            statistics=self.statistics + other.statistics,
            explained_variance=self.explained_variance + other.explained_variance,
        )

    def segment_sum(self, segment_ids: Int[Array, " S"], num_segments: int) -> Self:
        """Returns these rows added up, row s into row `segment_ids[s]`; -1 is left out.

        If only one of every G sequences was decoded, its segment counts for all G.
        """
        decoded = self.explained_variance.tokens.shape[0]
        return type(self)(
            statistics=self.statistics.segment_sum(segment_ids, num_segments),
            explained_variance=self.explained_variance.segment_sum(
                segment_ids[:: len(segment_ids) // decoded], num_segments
            ),
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class SAEObserver:
    """Sums up every latent of an autoencoder inside the update; rows are BAND_ROWS.

    The reconstruction is measured only on the first completion of each group, because
    decoding costs as much as encoding.
    """

    tsae: TSAE

    def init(self) -> LatentSums:
        """Returns the sums over no tokens."""
        rows = len(BAND_ROWS)
        return sum_latents_by_sequence(
            self.tsae,
            jnp.zeros((rows, 1, self.tsae.width), jnp.float32),
            jnp.zeros((rows, 1), bool),
            outcome=jnp.zeros(rows, jnp.int32),
        )

    def observe(self, residual: Float[Array, " B T D"], batch: Batch, /) -> LatentSums:
        """Returns the sums over a micro-batch; `residual` has tokens 0..T-2."""
        if batch.probe_targets is None:
            raise ValueError("SAEObserver.observe needs a batch with probe_targets")
        by_sequence = sum_latents_by_sequence(
            self.tsae,
            residual,
            activation_mask(batch)[:, : residual.shape[1]],
            outcome=batch.probe_targets.outcomes,
            decode_every=batch.tokens.shape[0] // batch.prompt_lengths.shape[0],
        )
        row_B = jnp.where(batch.bands < 0, len(BANDS), batch.bands)
        return by_sequence.segment_sum(row_B, len(BAND_ROWS))


def sum_latents_by_sequence(
    tsae: TSAE,
    residual: Float[Array, " B T D"],
    mask: Bool[Array, " B T"],
    *,
    outcome: Int[Array, " B"],
    decode_every: int = 1,
) -> LatentSums:
    """Returns sums over the tokens of `mask`, one row per sequence.

    To bound memory, a few tokens of each sequence are encoded at a time. The first of
    every `decode_every` sequences is decoded as well.
    """
    B, T, _ = residual.shape
    width = max(1, min(T, _MAX_LATENT_ELEMENTS // (B * tsae.latents)))
    extra = -T % width
    residual = jnp.pad(residual, ((0, 0), (0, extra), (0, 0)))
    mask = jnp.pad(mask, ((0, 0), (0, extra)))

    def sum_from(start: Array) -> LatentSums:
        x_BtD = jax.lax.dynamic_slice_in_dim(residual, start, width, axis=1)
        mask_Bt = jax.lax.dynamic_slice_in_dim(mask, start, width, axis=1)
        x_BtD = jnp.where(mask_Bt[:, :, None], x_BtD.astype(jnp.float32), 0.0)
        f_BtZ = with_logical_constraint(tsae.encode(x_BtD), "batch", None, "latents")
        every = slice(None, None, decode_every)
        return LatentSums(
            statistics=sequence_statistics(f_BtZ, mask=mask_Bt, outcome=outcome),
            explained_variance=_sum_explained_variance(
                tsae, x_BtD[every], f_BtZ[every], mask_Bt[every]
            ),
        )

    if width == T:
        return sum_from(jnp.int32(0))
    starts = jnp.arange(0, T + extra, width, dtype=jnp.int32)

    def add(total: LatentSums, start: Array) -> tuple[LatentSums, None]:
        return total + sum_from(start), None

    return jax.lax.scan(add, sum_from(starts[0]), starts[1:])[0]


def _sum_explained_variance(
    tsae: TSAE,
    x_BTD: Float[Array, " B T D"],
    f_BTZ: Float[Array, " B T Z"],
    mask: Bool[Array, " B T"],
) -> ExplainedVariance:
    """Returns one row per sequence; x is 0 at tokens that do not count."""
    error_BTD = jnp.where(mask[:, :, None], x_BTD - tsae.decode(f_BTZ), 0.0)
    return ExplainedVariance(
        tokens=mask.sum(axis=1).astype(jnp.float32),
        sum_x=x_BTD.sum(axis=1),
        sum_squares=(x_BTD**2).sum(axis=(1, 2)),
        sum_squared_error=(error_BTD**2).sum(axis=(1, 2)),
    )


def to_feature_table(latents: LatentSums, rows: Sequence[RowKey]) -> FeatureTable:
    """Returns the rows that have tokens, as a table."""
    kept = np.flatnonzero(np.asarray(latents.statistics.tokens))
    statistics = jax.tree.map(lambda a: np.asarray(a)[kept], latents.statistics)
    return FeatureTable.from_device([rows[int(i)] for i in kept], statistics)


def measure_fidelity(
    latents: LatentSums,
    *,
    step: int,
    split: str,
    bands: Int[np.ndarray, " G"],
    splice: SpliceSums | None = None,
) -> list[dict[str, Any]]:
    """Returns how well the autoencoder still reconstructs, by band and overall ("").

    `bands` has one entry for each row of `latents` and of `splice`. A band without
    tokens has no line.
    """
    host = jax.device_get(latents)
    lines = []
    for index, band in [(-1, ""), *enumerate(BANDS)]:
        row = np.where((bands == index) | (index < 0), 0, -1)
        in_band = jax.device_get(host.segment_sum(row.astype(np.int32), 1))
        tokens = int(in_band.statistics.tokens[0])
        fve = float(in_band.explained_variance.fve()[0])
        if tokens and np.isfinite(fve):
            l0 = float(in_band.statistics.nonzero.sum()) / tokens
            line: dict[str, Any] = {
                "step": step,
                "band": band,
                "split": split,
                "fve": fve,
                "l0": l0,
            }
            if splice is not None:
                line |= splice.per_token(row == 0, tokens)
            lines.append(line)
    return lines
