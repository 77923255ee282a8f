"""The frozen autoencoder beside the policy: what it reads inside the update.

A `Probe` gives each update its `Guide` (R reasoning features, every step) and, in
logged steps, the dictionary whose every latent is counted by band. It also reads fixed
texts again and again, so that what changes is the policy and not what it reads.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Bool, Float, Int

from job_jax.mesh import constrain, partition
from rlvr_jax.models import Transformer
from rlvr_jax.selection import Selection
from rlvr_jax.types import BANDS, Array, Batch, Guide
from sae_jax import io
from sae_jax.feature_statistics import (
    FeatureStatistics,
    FeatureTable,
    Row,
    collect_sequences,
)
from sae_jax.sae import TSAE

SELECTION_FILE, FIXED_FILE = "selection.json", "fixed_texts.npz"

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
        """Returns these rows added up, row s into row `row[s]`."""
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
        """Returns these rows added up, row s into row `row[s]`; -1 is left out."""
        return type(self)(
            statistics=self.statistics.grouped(row, rows),
            explained=self.explained.grouped(row, rows),
        )


class Observer:
    """Statistics of every latent, gathered inside the update: the rows are ROWS.

    Whether the dictionary still explains the stream is measured on the first completion
    of each group, for decoding costs as much as encoding.
    """

    def nothing(self, dictionary: TSAE) -> Latents:
        """Returns the statistics of no tokens."""
        width, latents, Q = dictionary.width, dictionary.latents, len(ROWS)
        none = collect_sequences(
            jnp.zeros((Q, 0, latents), jnp.float32),
            counted=jnp.zeros((Q, 0), bool),
            outcome=jnp.zeros(Q, jnp.int32),
        )
        zeros_Q = jnp.zeros(Q, jnp.float32)
        return Latents(
            statistics=none,
            explained=Explained(
                tokens=zeros_Q,
                sums=jnp.zeros((Q, width), jnp.float32),
                squares=zeros_Q,
                error=zeros_Q,
            ),
        )

    def __call__(
        self, stream: Float[Array, " B T D"], batch: Batch, dictionary: TSAE
    ) -> Latents:
        """Returns the statistics of a micro-batch, of the stream at tokens 0..T-2."""
        if batch.guidance is None:
            raise ValueError("an observer needs a batch with guidance")
        T = stream.shape[1]
        index_T = jnp.arange(T, dtype=jnp.int32)
        counted_BT = index_T[None] < batch.lengths[:, None] - 1
        G = batch.tokens.shape[0] // batch.prompt_lengths.shape[0]
        row_B = jnp.where(batch.bands < 0, len(BANDS), batch.bands)
        statistics = sequence_statistics(
            dictionary, stream, counted_BT, batch.guidance.outcomes
        )
        explained = sequences_explained(dictionary, stream[::G], counted_BT[::G])
        return Latents(
            statistics=statistics.grouped(row_B, len(ROWS)),
            explained=explained.grouped(row_B[::G], len(ROWS)),
        )


def sequence_statistics(
    tsae: TSAE,
    stream: Float[Array, " B T D"],
    counted: Bool[Array, " B T"],
    outcome: Int[Array, " B"],
) -> FeatureStatistics:
    """Returns one row per sequence; latents exist for a few of its tokens at a time."""
    B, T, _ = stream.shape
    width = max(1, min(T, _LATENTS_AT_ONCE // (B * tsae.latents)))
    extra = -T % width
    stream = jnp.pad(stream, ((0, 0), (0, extra), (0, 0)))
    counted = jnp.pad(counted, ((0, 0), (0, extra)))

    def of(start: Array) -> FeatureStatistics:
        part_BtD = jax.lax.dynamic_slice_in_dim(stream, start, width, axis=1)
        kept_Bt = jax.lax.dynamic_slice_in_dim(counted, start, width, axis=1)
        part_BtD = jnp.where(kept_Bt[:, :, None], part_BtD.astype(jnp.float32), 0.0)
        f_BtZ = constrain(tsae.encode(part_BtD), "batch", None, "latents")
        return collect_sequences(f_BtZ, counted=kept_Bt, outcome=outcome)

    if extra == 0 and width == T:
        return of(jnp.int32(0))
    starts = jnp.arange(0, T + extra, width, dtype=jnp.int32)

    def add(total: FeatureStatistics, start: Array) -> tuple[FeatureStatistics, None]:
        return total + of(start), None

    return jax.lax.scan(add, of(starts[0]), starts[1:])[0]


def sequences_explained(
    tsae: TSAE, stream: Float[Array, " B T D"], counted: Bool[Array, " B T"]
) -> Explained:
    """Returns one row per sequence of what the dictionary explains of its tokens."""
    kept_BT1 = counted[:, :, None]
    x_BTD = jnp.where(kept_BT1, stream.astype(jnp.float32), 0.0)

    def of(row: tuple[Array, Array]) -> Array:
        x_TD, kept_T = row
        apart_TD = x_TD - tsae.decode(tsae.encode(x_TD))
        return jnp.where(kept_T[:, None], apart_TD**2, 0.0).sum()

    return Explained(
        tokens=counted.sum(axis=1).astype(jnp.float32),
        sums=x_BTD.sum(axis=1),
        squares=(x_BTD**2).sum(axis=(1, 2)),
        error=jax.lax.map(of, (x_BTD, counted)),
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedTexts:
    """Prompts with one completion each of the policy before RL, always the same.

    Written by stage `tsae`. `names` are the problems' ids, `bands` theirs for that
    policy (indices into BANDS), `outcomes` as in `types.Guidance`.
    """

    names: tuple[str, ...] = dataclasses.field(metadata={"static": True})
    prompt_tokens: Int[Array, " F S"]
    prompt_lengths: Int[Array, " F"]
    tokens: Int[Array, " F T"]
    lengths: Int[Array, " F"]
    bands: Int[Array, " F"]
    outcomes: Int[Array, " F"]

    def save(self, path: Path) -> None:
        """Writes the texts as .npz, in one step."""
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, **{**vars(self), "names": np.array(self.names)})
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "names"}
            return cls(names=tuple(file["names"].tolist()), **arrays)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """An opened autoencoder and the features chosen of it. `tsae` lies on the mesh."""

    tsae: TSAE
    selection: Selection
    fixed: FixedTexts

    @property
    def layer(self) -> int:
        """Returns the layer whose residual stream is read."""
        return self.selection.layer

    def guide(
        self,
        scale_R: Sequence[float],
        *,
        proxy_strength: float,
        key: jax.Array,
    ) -> Guide:
        """Returns the guide of one step; `scale_R` are the features' running scales."""
        chosen, tsae = self.selection, self.tsae
        if chosen.direction:
            columns: dict[str, Any] = {
                "center": np.array(chosen.centre, np.float32),
                "encoder": np.array(chosen.direction, np.float32)[:, None],
                "bias": np.zeros(1, np.float32),
                "threshold": np.full(1, -np.inf, np.float32),
            }
        else:
            of_R = np.array(chosen.latents)
            columns = {
                "center": tsae.decoder_bias,
                "encoder": tsae.encoder[:, of_R],
                "bias": tsae.encoder_bias[of_R],
                # A threshold that was never found is negative: a plain ReLU.
                "threshold": jnp.maximum(tsae.threshold[of_R], 0.0),
            }
        return Guide(
            **columns,
            weights=np.array(chosen.weights, np.float32),
            scale=np.array(scale_R, np.float32),
            proxy_strength=np.float32(proxy_strength),
            key=key,
        )

    def read_fixed(self, graphdef: Any, params: Any, texts: FixedTexts) -> Latents:
        """Returns what all latents do on texts that lie on the mesh, a row a text."""
        return _read(graphdef, params, self.tsae, texts, layer=self.layer)


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _read(
    graphdef: Any,
    params: Any,
    tsae: TSAE,
    texts: FixedTexts,
    *,
    layer: int,
) -> Latents:
    policy: Transformer = nnx.merge(graphdef, params)
    layers, S = policy.layers(), texts.prompt_tokens.shape[1]
    mask_FS = jnp.arange(S, dtype=jnp.int32)[None] < texts.prompt_lengths[:, None]
    _, prefix = policy.prefill(texts.prompt_tokens, mask_FS, layers=layers)
    rest = policy.extend(texts.tokens, prefix, layers=layers, taps=(layer,))
    stream_FTD = rest.taps[0]
    index_T = jnp.arange(stream_FTD.shape[1], dtype=jnp.int32)
    counted_FT = index_T[None] < texts.lengths[:, None] - 1
    return Latents(
        statistics=sequence_statistics(tsae, stream_FTD, counted_FT, texts.outcomes),
        explained=sequences_explained(tsae, stream_FTD, counted_FT),
    )


def table(
    latents: Latents, *, run: str, step: int, split: str, texts: FixedTexts | None
) -> FeatureTable:
    """Returns the rows that hold tokens: one a text, or else those of ROWS."""
    if texts is None:
        rows = [Row(run, step, band, split) for band in ROWS]
    else:
        bands = [BANDS[band] for band in texts.bands.tolist()]
        rows = [
            Row(run, step, band, split, name)
            for band, name in zip(bands, texts.names, strict=True)
        ]
    kept = np.flatnonzero(np.asarray(latents.statistics.tokens))
    statistics = jax.tree.map(lambda a: np.asarray(a)[kept], latents.statistics)
    return FeatureTable.of([rows[i] for i in kept], statistics)


def validity(
    latents: Latents, *, step: int, split: str, bands: Int[np.ndarray, " G"]
) -> list[dict[str, Any]]:
    """Returns how well the dictionary still explains the stream, by band and in all.

    `bands` are the rows' own. A band without tokens has no line.
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
            lines.append(
                {"step": step, "band": band, "split": split, "fve": fve, "l0": l0}
            )
    return lines


def placed(tsae: TSAE, mesh: Mesh) -> TSAE:
    """Returns the dictionary on the mesh, its latents over the tensor axis."""
    axes = {
        "encoder": (None, "latents"),
        "encoder_bias": ("latents",),
        "decoder": ("latents", None),
        "decoder_bias": (None,),
        "threshold": ("latents",),
    }

    def place(name: str) -> Array:
        array = np.asarray(vars(tsae)[name], np.float32)
        layout = NamedSharding(mesh, partition(array.shape, axes[name], mesh))
        return jax.device_put(array, layout)

    arrays: dict[str, Any] = {name: place(name) for name in axes}
    return dataclasses.replace(tsae, **arrays)


def open_probe(directory: Path, mesh: Mesh) -> Probe:
    """Returns the probe that stage `tsae` left in a workdir's sae/."""
    return Probe(
        tsae=placed(io.load(directory), mesh),
        selection=Selection.load(directory / SELECTION_FILE),
        fixed=FixedTexts.load(directory / FIXED_FILE),
    )
