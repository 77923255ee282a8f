"""A policy's loss when it reads an autoencoder's reconstruction of its stream.

Reference texts are scored three times: unchanged (clean), with the reconstruction
instead of the residual stream (spliced), and with the stream's mean over the texts
(mean-ablated). The last is the cost of knowing nothing about a token. Replacing the
stream by zeros would not be a fair baseline: it breaks the policy, and anything looks
good in comparison.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Bool, Float, Int

from rlvr_jax.models import Transformer
from rlvr_jax.models.layer_loop import Intervention
from rlvr_jax.models.next_tokens import compare_next_tokens
from rlvr_jax.probe.latent_stats import LatentSums, SpliceSums, sum_latents_by_sequence
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.types import Array
from sae_jax.sae import TSAE


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReferenceStats:
    """Statistics of the reference texts, a row per text. Made by `measure_texts`."""

    latents: LatentSums
    splice: SpliceSums


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reconstruct:
    """Replaces the stream after a layer by its reconstruction."""

    tsae: TSAE
    layer: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Float[Array, "B T D"], /) -> Float[Array, "B T D"]:
        """Returns the stream that the layers above read."""
        xhat = self.tsae.decode(self.tsae.encode(x.astype(jnp.float32)))
        return xhat.astype(x.dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Constant:
    """Replaces the stream after a layer by one vector."""

    vector: Float[Array, " D"]
    layer: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Float[Array, "B T D"], /) -> Float[Array, "B T D"]:
        """Returns the stream that the layers above read."""
        return jnp.broadcast_to(self.vector.astype(x.dtype), x.shape)


def measure_texts(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    tsae: TSAE,
    texts: ReferenceTexts,
    *,
    layer: int,
) -> ReferenceStats:
    """Returns the sums of every latent over each text, and the cost of splicing.

    A text's first token is not counted: it is predicted from the prompt, whose stream
    is not replaced. Nor are an environment's tokens. Meant to be jitted, with
    `graphdef` and `layer` static.
    """
    policy: Transformer = nnx.merge(graphdef, params)
    index_T = jnp.arange(texts.tokens.shape[1], dtype=jnp.int32)
    counted_FT = (index_T[None] > 0) & texts.mask

    def run(*edits: Intervention, taps: tuple[int, ...] = ()) -> Any:
        return policy.hidden_states(
            texts.prompt_tokens,
            texts.prompt_lengths,
            texts.tokens,
            capture_layers=taps,
            interventions=edits,
        ).completions

    clean = run(taps=(layer,))
    # Tokens 1..T-1 are predicted from the stream of tokens 0..T-2.
    stream_FTD = clean.captured[0][:, :-1].astype(jnp.float32)
    reads_FT1 = counted_FT[:, 1:, None]
    mean_D = jnp.sum(stream_FTD, axis=(0, 1), where=reads_FT1) / jnp.maximum(
        reads_FT1.sum(), 1
    ).astype(jnp.float32)
    arms = (
        clean.hidden,
        run(_Reconstruct(tsae=tsae, layer=layer)).hidden,
        run(_Constant(vector=mean_D, layer=layer)).hidden,
    )
    return ReferenceStats(
        latents=sum_latents_by_sequence(
            tsae, stream_FTD, counted_FT[:, 1:], outcome=texts.outcomes
        ),
        splice=_compare_predictions(policy, arms, texts.tokens, counted_FT),
    )


def _compare_predictions(
    policy: Transformer,
    arms: tuple[Float[Array, "F T D"], ...],
    tokens: Int[Array, "F T"],
    counted: Bool[Array, "F T"],
) -> SpliceSums:
    """Returns each text's sums over its counted tokens, from hidden states by arm."""
    counted_1FN = counted[None, :, 1:]
    nats_AF, kl_AF = (
        jnp.where(counted_1FN, each_AFN, 0.0).sum(axis=2)
        for each_AFN in compare_next_tokens(policy, arms, tokens)
    )
    return SpliceSums(cross_entropy=nats_AF, kl=kl_AF)
