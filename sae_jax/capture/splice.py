"""What a model loses when its stream is replaced by an autoencoder's reconstruction.

    recovered   1 - (nats spliced - nats clean) / (nats mean-ablated - nats clean)
    of the KL   1 - KL(clean || spliced) / KL(clean || mean-ablated)

The baseline replaces the stream by its mean over the tokens, which says nothing about a
token. Zeros would be no baseline, because they break the model, and anything looks good
compared with a broken model. Tokens that training leaves out (by role or norm, or
because they are special) keep their stream.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from job_jax.schema import ConfigError
from sae_jax.capture.reader import EditableReader, ModelReader, check_layers
from sae_jax.data.corpus import Corpus
from sae_jax.data.tokens import Documents
from sae_jax.sae import TSAE
from sae_jax.stats.resample import bootstrap_interval

_ARMS = ("clean", "spliced", "mean_ablated")
_HOOK = "resid_post"
_MAX_DIFFERENCE = 0.05  # relative, between rows on disk and the model's own


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reconstruct:
    tsae: TSAE

    def __call__(
        self, x: Float[Array, "B T D"], edited: Bool[Array, "B T"], /
    ) -> Float[Array, "B T D"]:
        xhat = self.tsae.decode(self.tsae.encode(x.astype(jnp.float32)))
        return jnp.where(edited[:, :, None], xhat.astype(x.dtype), x)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Constant:
    vector: Float[Array, " D"]

    def __call__(
        self, x: Float[Array, "B T D"], edited: Bool[Array, "B T"], /
    ) -> Float[Array, "B T D"]:
        vector = jnp.broadcast_to(self.vector.astype(x.dtype), x.shape)
        return jnp.where(edited[:, :, None], vector, x)


def measure_splice(tsae: TSAE, corpus: Corpus, reader: ModelReader) -> dict[str, Any]:
    """Returns the cost of the splice on a corpus that the model wrote or read.

    The report has nats a token for each arm, KL from the clean model, and the recovered
    share of both, with 95 % bootstrap intervals over problems. Raises ConfigError if
    the corpus does not hold this model's residual stream, or if the reader cannot edit
    it.
    """
    index = corpus.shards.index
    if not isinstance(reader, EditableReader):
        raise ConfigError(
            f"the reader of {reader.name} has no compare_predictions; add it, see "
            "sae_jax.capture.reader.EditableReader"
        )
    if not index.hook.endswith(_HOOK):
        raise ConfigError(
            f"activations at {index.hook}: only the stream after a layer ({_HOOK}) "
            "can be spliced; collect activations there"
        )
    check_layers(reader, [index.layer], field="layer of the activations: ")
    mean_D, counted = np.zeros(tsae.width), 0
    for block in corpus.blocks():
        if not counted and block.mask.any():
            _check_same_model(corpus, block, reader)
        mean_D += np.sum(block.x, axis=(0, 1), where=block.mask[:, :, None])
        counted += int(block.mask.sum())
    constant = _Constant(vector=jnp.asarray(mean_D / counted, jnp.float32))
    edits = (_Reconstruct(tsae=tsae), constant)
    sums: dict[int, np.ndarray] = {}
    for block in corpus.blocks():
        nats_ABN, kl_ABN = reader.compare_predictions(
            *_tokens(corpus, block), block.mask, layer=index.layer, edits=edits
        )
        inside_BN = block.mask[:, :-1] & (block.token_index[:, 1:] >= 0)
        totals_B7 = np.stack(
            [
                inside_BN.sum(axis=1),
                *(
                    np.where(inside_BN, each_BN, 0.0).sum(axis=1)
                    for each_BN in (*np.asarray(nats_ABN), *np.asarray(kl_ABN))
                ),
            ],
            axis=1,
        )
        for problem, row in zip(corpus.block_problems(block), totals_B7, strict=True):
            if problem >= 0:
                sums[problem] = sums.get(problem, 0) + row
    return _report(np.stack(list(sums.values())))


def _tokens(corpus: Corpus, block: Documents) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of a block's documents and their lengths (1 for padding rows)."""
    ids_BT = np.maximum(corpus.block_column("token_id", block), 0)
    lengths_B = np.maximum((block.token_index >= 0).sum(axis=1), 1)
    return ids_BT.astype(np.int32), lengths_B.astype(np.int32)


def _check_same_model(corpus: Corpus, block: Documents, reader: ModelReader) -> None:
    """Raises ConfigError if the model's stream differs from the activations on disk."""
    layer = corpus.shards.index.layer
    ids_BT, lengths_B = _tokens(corpus, block)
    if reader.width != corpus.shards.width or ids_BT.shape[1] > reader.max_tokens:
        raise ConfigError(
            f"{reader.name} reads {reader.max_tokens} tokens of width {reader.width}; "
            f"the activations have documents of {ids_BT.shape[1]} tokens of width "
            f"{corpus.shards.width}"
        )
    (x_BTD,) = reader.read(ids_BT, lengths_B, hook=_HOOK, layers=[layer])
    own_ND = np.asarray(x_BTD, np.float32)[block.mask]
    difference = np.linalg.norm(own_ND - block.x[block.mask]) / np.linalg.norm(own_ND)
    if not difference <= _MAX_DIFFERENCE:
        raise ConfigError(
            f"the stream of {reader.name} after layer {layer} differs from the "
            f"activations by {100 * difference:.0f} % of its norm: they are of another "
            f"model ({corpus.shards.index.model}); give that one"
        )


def _report(sums_P7: Float[np.ndarray, "P 7"]) -> dict[str, Any]:
    def statistics(total_7: Float[np.ndarray, " 7"]) -> Float[np.ndarray, " 8"]:
        nats, kl = total_7[1:4] / total_7[0], total_7[4:] / total_7[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            recovered = 1 - (nats[1] - nats[0]) / (nats[2] - nats[0])
            return np.array([*nats, *kl, recovered, 1 - kl[1] / kl[2]])

    if len(sums_P7) > 1:
        value, low, high = bootstrap_interval(statistics, sums_P7)
    else:
        value, low, high = statistics(sums_P7[0]), *np.full((2, 8), np.nan)
    ends = np.stack([value, low, high], axis=1)

    def named(row: Float[np.ndarray, " 3"]) -> Mapping[str, float | None]:
        numbers = [float(x) if np.isfinite(x) else None for x in row]
        return dict(zip(("mean", "low", "high"), numbers, strict=True))

    return {
        "tokens": int(sums_P7[:, 0].sum()),
        "problems": len(sums_P7),
        "cross_entropy": {arm: named(ends[i]) for i, arm in enumerate(_ARMS)},
        "kl": {arm: named(ends[3 + i]) for i, arm in enumerate(_ARMS) if i},
        "cross_entropy_recovered": named(ends[6]),
        "kl_recovered": named(ends[7]),
    }
