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
from jaxtyping import Float, Int

from job_jax import processes
from job_jax.mesh import partition
from rlvr_jax.latents import Latents, sequence_latents
from rlvr_jax.learn.logprobs import Scores, token_scores
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.selection import Selection
from rlvr_jax.types import BANDS, Array, Guide
from sae_jax import io
from sae_jax.feature_statistics import Row
from sae_jax.sae import TSAE

SELECTION_FILE, FIXED_FILE = "selection.json", "fixed_texts.npz"


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

    def rows(self, run: str, step: int) -> list[Row]:
        """Returns what a row of statistics of each text is about."""
        bands = [BANDS[band] for band in np.asarray(self.bands).tolist()]
        return [
            Row(run, step, band, "probe", name)
            for band, name in zip(bands, self.names, strict=True)
        ]

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

    def read_fixed(
        self, graphdef: Any, params: Any, texts: FixedTexts
    ) -> "TextReading":
        """Returns what all latents do on texts that lie on the mesh, a row a text."""
        return _read(graphdef, params, self.tsae, texts, layer=self.layer)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextReading:
    """What fixed texts say, a row a text.

    `ce` sums the cross-entropy of a text's tokens in nats, under the policy as it is,
    with the dictionary's reconstruction in the stream's place, and with zeros there.
    """

    latents: Latents
    ce: Float[Array, " 3 F"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Spliced:
    """The edit that puts the reconstruction in the stream's place, or else zeros."""

    tsae: TSAE | None
    layer: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Float[Array, "B T D"], /) -> Float[Array, "B T D"]:
        """Returns the stream that the layers above read."""
        if self.tsae is None:
            return jnp.zeros_like(x)
        xhat = self.tsae.decode(self.tsae.encode(x.astype(jnp.float32)))
        return xhat.astype(x.dtype)


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _read(
    graphdef: Any, params: Any, tsae: TSAE, texts: FixedTexts, *, layer: int
) -> TextReading:
    policy: Transformer = nnx.merge(graphdef, params)
    score = functools.partial(
        token_scores, policy, texts, Sampling.plain(), chunk=0, tap=layer
    )
    clean = score()
    assert clean.stream is not None
    index_T = jnp.arange(texts.tokens.shape[1], dtype=jnp.int32)
    # The first token is drawn from the prompt, which is read as it is.
    later_FT = (index_T[None] > 0) & (index_T[None] < texts.lengths[:, None])

    def ce(scores: Scores) -> Float[Array, " F"]:
        return -jnp.where(later_FT, scores.logprobs, 0.0).sum(axis=1)

    return TextReading(
        latents=sequence_latents(
            tsae, clean.stream, later_FT[:, 1:], outcome=texts.outcomes
        ),
        ce=jnp.stack(
            [
                ce(clean),
                ce(score(edit=_Spliced(tsae=tsae, layer=layer))),
                ce(score(edit=_Spliced(tsae=None, layer=layer))),
            ]
        ),
    )


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
        return processes.placed(array, layout)

    arrays: dict[str, Any] = {name: place(name) for name in axes}
    return dataclasses.replace(tsae, **arrays)


def open_probe(directory: Path, mesh: Mesh) -> Probe:
    """Returns the probe that stage `tsae` left in a workdir's sae/."""
    return Probe(
        tsae=placed(io.load(directory), mesh),
        selection=Selection.load(directory / SELECTION_FILE),
        fixed=FixedTexts.load(directory / FIXED_FILE),
    )
