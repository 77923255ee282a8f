"""What all latents of a dictionary do, as sums that add up: by band, by text.

Gathered inside the update or of fixed texts; read by `watching`, which writes them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.mesh import constrain
from rlvr_jax.types import BANDS, Array, Batch
from sae_jax.feature_statistics import (
    FeatureStatistics,
    FeatureTable,
    Row,
    collect_sequences,
)
from sae_jax.sae import TSAE

# The rows of own rollouts: the bands, and problems of which no account is kept.
ROWS = (*BANDS, "")

# Latents of tokens that may exist at once: 64 MB in float32.
_LATENTS_AT_ONCE = 1 << 24


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Explained:
    """Sums from which the share of variance explained follows; they add up."""

    tokens: Float[Array, " G"]
    sums: Float[Array, " G D"]
    squares: Float[Array, " G"]
    error: Float[Array, " G"]

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        return jax.tree.map(lambda a, b: a + b, self, other)

    def grouped(self, row: Int[Array, " S"], rows: int) -> Self:
        """Returns these rows added up, row s into row `row[s]`; -1 is left out."""
        return jax.tree.map(lambda a: jax.ops.segment_sum(a, row, rows), self)

    def fve(self) -> Float[np.ndarray, " G"]:
        """Returns 1 - sum |x - xhat|^2 / sum |x - mean|^2; NaN where no tokens are."""
        host = jax.tree.map(lambda a: np.asarray(a, np.float64), jax.device_get(self))
        counts = np.maximum(host.tokens, 1.0)
        scatter = host.squares - (host.sums**2).sum(axis=1) / counts
        empty = (host.tokens < 2) | (scatter <= 0)
        return np.where(empty, np.nan, 1 - host.error / np.where(empty, 1, scatter))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Latents:
    """What all latents did, by row. Written inside the update or of fixed texts."""

    statistics: FeatureStatistics
    explained: Explained

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        return type(self)(
            statistics=self.statistics + other.statistics,
            explained=self.explained + other.explained,
        )

    def grouped(self, row: Int[Array, " S"], rows: int) -> Self:
        """Returns these rows added up, row s into row `row[s]`; -1 is left out.

        Where one of every G sequences was decoded, its row is theirs.
        """
        decoded = self.explained.tokens.shape[0]
        return type(self)(
            statistics=self.statistics.grouped(row, rows),
            explained=self.explained.grouped(row[:: len(row) // decoded], rows),
        )


class Observer:
    """Statistics of every latent, gathered inside the update: the rows are ROWS.

    Whether the dictionary still explains the stream is measured on the first completion
    of each group, for decoding costs as much as encoding.
    """

    def nothing(self, dictionary: TSAE) -> Latents:
        """Returns the statistics of no tokens."""
        rows = len(ROWS)
        return sequence_latents(
            dictionary,
            jnp.zeros((rows, 1, dictionary.width), jnp.float32),
            jnp.zeros((rows, 1), bool),
            outcome=jnp.zeros(rows, jnp.int32),
        )

    def __call__(
        self, stream: Float[Array, " B T D"], batch: Batch, dictionary: TSAE
    ) -> Latents:
        """Returns the statistics of a micro-batch, of the stream at tokens 0..T-2."""
        if batch.guidance is None:
            raise ValueError("an observer needs a batch with guidance")
        index_T = jnp.arange(stream.shape[1], dtype=jnp.int32)
        found = sequence_latents(
            dictionary,
            stream,
            index_T[None] < batch.lengths[:, None] - 1,
            outcome=batch.guidance.outcomes,
            decode_every=batch.tokens.shape[0] // batch.prompt_lengths.shape[0],
        )
        row_B = jnp.where(batch.bands < 0, len(BANDS), batch.bands)
        return found.grouped(row_B, len(ROWS))


def sequence_latents(
    tsae: TSAE,
    stream: Float[Array, " B T D"],
    counted: Bool[Array, " B T"],
    *,
    outcome: Int[Array, " B"],
    decode_every: int = 1,
) -> Latents:
    """Returns one row per sequence; latents exist for a few of its tokens at a time.

    The first of every `decode_every` sequences is decoded as well.
    """
    B, T, _ = stream.shape
    width = max(1, min(T, _LATENTS_AT_ONCE // (B * tsae.latents)))
    extra = -T % width
    stream = jnp.pad(stream, ((0, 0), (0, extra), (0, 0)))
    counted = jnp.pad(counted, ((0, 0), (0, extra)))

    def of(start: Array) -> Latents:
        x_BtD = jax.lax.dynamic_slice_in_dim(stream, start, width, axis=1)
        kept_Bt = jax.lax.dynamic_slice_in_dim(counted, start, width, axis=1)
        x_BtD = jnp.where(kept_Bt[:, :, None], x_BtD.astype(jnp.float32), 0.0)
        f_BtZ = constrain(tsae.encode(x_BtD), "batch", None, "latents")
        every = slice(None, None, decode_every)
        return Latents(
            statistics=collect_sequences(f_BtZ, counted=kept_Bt, outcome=outcome),
            explained=_explained(tsae, x_BtD[every], f_BtZ[every], kept_Bt[every]),
        )

    if width == T:
        return of(jnp.int32(0))
    starts = jnp.arange(0, T + extra, width, dtype=jnp.int32)

    def add(total: Latents, start: Array) -> tuple[Latents, None]:
        return total + of(start), None

    return jax.lax.scan(add, of(starts[0]), starts[1:])[0]


def _explained(
    tsae: TSAE,
    x_BTD: Float[Array, " B T D"],
    f_BTZ: Float[Array, " B T Z"],
    counted: Bool[Array, " B T"],
) -> Explained:
    """Returns one row per sequence; x is 0 where a token does not count."""
    apart_BTD = jnp.where(counted[:, :, None], x_BTD - tsae.decode(f_BTZ), 0.0)
    return Explained(
        tokens=counted.sum(axis=1).astype(jnp.float32),
        sums=x_BTD.sum(axis=1),
        squares=(x_BTD**2).sum(axis=(1, 2)),
        error=(apart_BTD**2).sum(axis=(1, 2)),
    )


def table(latents: Latents, rows: Sequence[Row]) -> FeatureTable:
    """Returns those of the rows that hold tokens."""
    kept = np.flatnonzero(np.asarray(latents.statistics.tokens))
    statistics = jax.tree.map(lambda a: np.asarray(a)[kept], latents.statistics)
    return FeatureTable.of([rows[int(i)] for i in kept], statistics)


def validity(
    latents: Latents,
    *,
    step: int,
    split: str,
    bands: Int[np.ndarray, " G"],
    ce: Float[np.ndarray, " 3 G"] | None = None,
) -> list[dict[str, Any]]:
    """Returns how well the dictionary still explains the stream, by band and in all.

    `bands` are the rows' own, `ce` as in `TextReading`. A band without tokens has no
    line.
    """
    host = jax.device_get(latents)
    lines = []
    for index, band in [(-1, ""), *enumerate(BANDS)]:
        row = np.where((bands == index) | (index < 0), 0, -1)
        of_band = jax.device_get(host.grouped(row.astype(np.int32), 1))
        tokens = int(of_band.statistics.tokens[0])
        fve = float(of_band.explained.fve()[0])
        if tokens and np.isfinite(fve):
            l0 = float(of_band.statistics.nonzero.sum()) / tokens
            line = {"step": step, "band": band, "split": split, "fve": fve, "l0": l0}
            if ce is not None:
                clean, spliced, ablated = ce[:, row == 0].sum(axis=1).tolist()
                lost = ablated - clean
                line["ce_recovered"] = (ablated - spliced) / lost if lost else None
            lines.append(line)
    return lines
