"""The probe `sae` during RL: latents of a frozen autoencoder, read inside the update.

Logged steps also sum up every latent, over the step's completions by band and over the
reference texts by problem, and measure how well the autoencoder still reconstructs:

    features/step_NNNNNN.npz       sums of every latent
    features/sae_fidelity.jsonl    explained variance, L0, cost of splicing

After RL one more file supports claims about RL's changes:

    features/noise_NNNNNN.npz      sums of every latent under noise in the weights
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Float, Int

from job_jax import processes
from job_jax.files import write_atomically
from job_jax.mesh import partition_spec
from job_jax.working import working
from rlvr_jax.probe.latent_stats import (
    BAND_ROWS,
    LatentSums,
    SAEObserver,
    measure_fidelity,
    to_feature_table,
)
from rlvr_jax.probe.protocol import Probe
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.probe.splice import ReferenceStats, measure_texts
from rlvr_jax.probe.weight_noise import noise_file, read_under_noise
from rlvr_jax.types import BANDS, Array
from sae_jax.sae import TSAE, matmul_float32
from sae_jax.stats.feature_statistics import FeatureTable, RowKey

FEATURES_DIR, FIDELITY_FILE = "features", "sae_fidelity.jsonl"
# Limits how many tokens a TopKReader encodes at once: this many floats take 256 MB over
# all shards of the batch. The encoder is read from memory once per block.
_MAX_TOP_K_ELEMENTS = 1 << 26
_SHOWN = (  # parts of the fidelity that are shown as metrics
    "fve",
    "l0",
    "splice_nats",
    "splice_cost",
    "splice_kl",
    "mean_ablation_kl",
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentReader:
    """Computes R latents of an autoencoder, or projections on R raw directions.

    pre_k = (x - center) . encoder_k + bias_k
    f_k = pre_k where pre_k > threshold_k, else 0
    """

    center: Float[Array, " D"]
    encoder: Float[Array, " D R"]
    bias: Float[Array, " R"]
    threshold: Float[Array, " R"]

    @classmethod
    def of_latents(cls, tsae: TSAE, selection: FeatureSelection) -> Self:
        """Returns a reader of the columns of `tsae` that the selection names."""
        if selection.directions:
            R = len(selection.directions)
            return cls(
                center=np.array(selection.center, np.float32),
                encoder=np.array(selection.directions, np.float32).T,
                # With bounds only values above them count; without, both signs do.
                bias=-np.array(selection.bounds or (0.0,) * R, np.float32),
                threshold=np.full(R, 0.0 if selection.bounds else -np.inf, np.float32),
            )
        latents_R = np.array(selection.latents, np.int64)
        return cls(
            center=tsae.decoder_bias,
            encoder=tsae.encoder[:, latents_R],
            bias=tsae.encoder_bias[latents_R],
            # A threshold that was never calibrated is negative: a plain ReLU.
            threshold=jnp.maximum(tsae.threshold[latents_R], 0.0),
        )

    def features(self, residual: Float[Array, "B T D"], /) -> Float[Array, "B T R"]:
        """Returns the features of each token."""
        pre_BTR = matmul_float32(residual - self.center[None, None], self.encoder)
        pre_BTR = pre_BTR + self.bias[None, None]
        return jnp.where(pre_BTR > self.threshold[None, None], pre_BTR, 0.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TopKReader:
    """Computes R latents of an autoencoder that keeps each token's k largest.

    Whether a latent is among them depends on all the others, so all are encoded, a few
    tokens of each sequence at a time. A latent is kept if fewer than k are larger.
    `latents` are the numbers of the R columns.
    """

    center: Float[Array, " D"]
    encoder: Float[Array, " D Z"]
    bias: Float[Array, " Z"]
    threshold: Float[Array, " Z"]
    latents: Int[Array, " R"]
    k: int = dataclasses.field(metadata={"static": True})

    @classmethod
    def of_latents(cls, tsae: TSAE, latents: Sequence[int]) -> Self:
        """Returns a reader of these latents. Raises ValueError without a `top_k`."""
        if tsae.top_k is None:
            raise ValueError("TopKReader reads an autoencoder with top_k")
        return cls(
            center=tsae.decoder_bias,
            encoder=tsae.encoder,
            bias=tsae.encoder_bias,
            threshold=jnp.maximum(tsae.threshold, 0.0),
            latents=np.array(latents, np.int32),
            k=tsae.top_k,
        )

    def features(self, residual: Float[Array, "B T D"], /) -> Float[Array, "B T R"]:
        """Returns the features of each token."""
        B, T, D = residual.shape
        width = max(1, min(T, _MAX_TOP_K_ELEMENTS // (B * self.encoder.shape[1])))
        extra = -T % width
        padded = jnp.pad(residual, ((0, 0), (0, extra), (0, 0)))
        blocks = padded.reshape(B, -1, width, D).transpose(1, 0, 2, 3)
        f_NBtR = jax.lax.map(self._of_block, blocks)
        R = self.latents.shape[0]
        return f_NBtR.transpose(1, 0, 2, 3).reshape(B, T + extra, R)[:, :T]

    def _of_block(self, residual: Float[Array, "B T D"]) -> Float[Array, "B T R"]:
        centred_BTD = residual - self.center[None, None]
        pre_BTZ = matmul_float32(centred_BTD, self.encoder) + self.bias[None, None]
        f_BTZ = jnp.where(pre_BTZ > self.threshold[None, None], pre_BTZ, 0.0)
        f_BTR = f_BTZ[:, :, self.latents]
        larger_BTR = (f_BTZ[:, :, None] > f_BTR[:, :, :, None]).sum(axis=3)
        return jnp.where(larger_BTR < self.k, f_BTR, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SAEProbe(Probe):
    """An autoencoder on the mesh, and its selected features."""

    tsae: TSAE

    @classmethod
    def of_selection(cls, tsae: TSAE, selection: FeatureSelection) -> Self:
        """Returns the probe that reads the selected features of `tsae`."""
        names = tuple(map(str, selection.latents))
        return cls(
            layer=selection.layer,
            feature_names=_direction_names(selection) or names,
            weights=selection.weights,
            rms=selection.rms,
            reader=make_reader(tsae, selection),
            observer=SAEObserver(tsae=tsae),
            tsae=tsae,
        )

    @classmethod
    def without_features(cls, tsae: TSAE, *, layer: int) -> Self:
        """Returns a probe that reads texts by `tsae`, and has no selected features."""
        return cls(
            layer=layer,
            feature_names=(),
            weights=(),
            rms=(),
            reader=LatentReader(  # of no columns: nothing is rewarded or weighed
                center=tsae.decoder_bias,
                encoder=tsae.encoder[:, :0],
                bias=tsae.encoder_bias[:0],
                threshold=tsae.threshold[:0],
            ),
            tsae=tsae,
        )

    def read_texts(
        self, graphdef: nnx.GraphDef, params: nnx.State, texts: ReferenceTexts
    ) -> ReferenceStats:
        """Returns sums of every latent over each text, and the cost of splicing."""
        return read_reference_texts(
            graphdef, params, self.tsae, texts, layer=self.layer
        )

    def write_step(
        self,
        directory: Path,
        *,
        run: str,
        step: int,
        rollout_sums: LatentSums | None,
        texts: ReferenceTexts,
        text_stats: ReferenceStats | None,
    ) -> dict[str, float]:
        """Writes a step's tables to features/; returns the overall fidelity as metrics.

        Anything that an interrupted attempt wrote for this or later steps is replaced.
        """
        tables: list[FeatureTable] = []
        lines: list[dict[str, Any]] = []
        if rollout_sums is not None:
            keys = [RowKey(run, step, band, "rollout") for band in BAND_ROWS]
            tables.append(to_feature_table(rollout_sums, keys))
            bands = np.arange(len(BAND_ROWS))
            lines += measure_fidelity(
                rollout_sums, step=step, split="rollout", bands=bands
            )
        if text_stats is not None:
            tables.append(
                to_feature_table(text_stats.latents, _row_keys(texts, run, step))
            )
            lines += measure_fidelity(
                text_stats.latents,
                step=step,
                split="reference",
                bands=np.asarray(texts.bands),
                splice=text_stats.splice,
            )
        if processes.is_primary():
            folder = directory / FEATURES_DIR
            folder.mkdir(exist_ok=True)
            FeatureTable.concatenate(tables).save(folder / f"step_{step:06d}.npz")
            _replace_lines(folder / FIDELITY_FILE, step, lines)
        return {
            f"sae/{name}_{line['split']}": line[name]
            for line in lines
            if line["band"] == ""
            for name in _SHOWN
            if line.get(name) is not None
        }

    def write_noise(
        self,
        directory: Path,
        graphdef: nnx.GraphDef,
        *,
        before: nnx.State,
        after: nnx.State,
        texts: ReferenceTexts,
        step: int,
        key: jax.Array,
    ) -> None:
        """Writes the texts' sums under weight noise that is as large as RL's change."""
        with working("reading texts under weight noise"):
            readings = read_under_noise(
                graphdef, before, after, self.tsae, texts, layer=self.layer, key=key
            )
        if processes.is_primary():
            path = noise_file(directory, step)
            path.parent.mkdir(exist_ok=True)
            readings.save(path)


def make_reader(tsae: TSAE, selection: FeatureSelection) -> LatentReader | TopKReader:
    """Returns the reader of the selected latents, or of their replacing directions."""
    if tsae.top_k is None or selection.directions:
        return LatentReader.of_latents(tsae, selection)
    return TopKReader.of_latents(tsae, selection.latents)


def _direction_names(selection: FeatureSelection) -> tuple[str, ...]:
    """Returns the names of the directions that replace latents."""
    if selection.control == "direction":
        return ("direction",) * len(selection.directions)
    return tuple(f"direction_{k}" for k in range(len(selection.directions)))


def _row_keys(texts: ReferenceTexts, run: str, step: int) -> list[RowKey]:
    bands = [BANDS[band] for band in np.asarray(texts.bands).tolist()]
    return [
        RowKey(run, step, band, "reference", problem_id)
        for band, problem_id in zip(bands, texts.problem_ids, strict=True)
    ]


def _replace_lines(path: Path, step: int, lines: list[dict[str, Any]]) -> None:
    """Appends a step's lines, and drops old lines of this step and later ones."""
    old = path.read_text().splitlines() if path.exists() else []
    earlier = [line for line in old if json.loads(line)["step"] < step]
    with write_atomically(path) as partial:
        text = "".join(f"{x}\n" for x in [*earlier, *map(json.dumps, lines)])
        partial.write_text(text)


read_reference_texts = jax.jit(measure_texts, static_argnames=("graphdef", "layer"))


def shard_sae(tsae: TSAE, mesh: Mesh) -> TSAE:
    """Returns the autoencoder on the mesh, its latents split over the tensor axis."""
    arrays: dict[str, Any] = {
        name: processes.device_put(np.asarray(vars(tsae)[name], np.float32), sharding)
        for name, sharding in sae_shardings(tsae, mesh).items()
    }
    return dataclasses.replace(tsae, **arrays)


def sae_shardings(tsae: TSAE, mesh: Mesh) -> dict[str, NamedSharding]:
    """Returns the sharding of each array of the autoencoder, or of its shape."""
    axes = {
        "encoder": (None, "latents"),
        "encoder_bias": ("latents",),
        "decoder": ("latents", None),
        "decoder_bias": (None,),
        "threshold": ("latents",),
    }
    return {
        name: NamedSharding(mesh, partition_spec(vars(tsae)[name].shape, names, mesh))
        for name, names in axes.items()
    }
