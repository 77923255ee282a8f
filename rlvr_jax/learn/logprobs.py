"""Log-probabilities and entropies of completions, without the array of all logits.

Logits of 4,096 positions over a vocabulary of 151,936 fill 2.5 GB in float32. Here they
exist for one chunk of positions at a time, in the forward and in the backward pass.
"""

import dataclasses
import functools
from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from job_jax.mesh import mesh_platform
from rlvr_jax.learn.packing import pack_tokens, unpack
from rlvr_jax.models.distribution import SamplingParams, sampling_logits
from rlvr_jax.models.masks import Segments
from rlvr_jax.models.transformer import Transformer
from rlvr_jax.types import Packing

# With logits_chunk_size=0, the most logits that exist at once: 64 MB in float32. A
# chunk takes about eight times as much memory, which on a CPU is much of a step's
# memory.
_MAX_LOGITS = 1 << 24
_MAX_LOGITS_ON_CPU = 1 << 23


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenScores:
    """Log-probability and entropy of every token; undefined beyond each length.

    Written by `token_scores`, read by the losses and the loop's metrics. `residual` is
    the residual stream after the captured layer at tokens 0..T-2, None without one.
    """

    logprobs: Float[Array, " B T"]
    entropies: Float[Array, " B T"]
    residual: Float[Array, " B T D"] | None = None


class CompletionBatch(Protocol):
    """The fields of a `Batch` that `token_scores` reads: B completions, B = P * G."""

    @property
    def prompt_tokens(self) -> Int[Array, " P S"]:
        """Returns the prompts, padded on the right."""
        ...

    @property
    def prompt_lengths(self) -> Int[Array, " P"]:
        """Returns the prompts' lengths."""
        ...

    @property
    def tokens(self) -> Int[Array, " B T"]:
        """Returns the completions, padded on the right."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rows:
    """The rows of a pass: one completion each, or several of a prompt if packed."""

    tokens: Int[Array, " U T"]
    index: Int[Array, " U T"]  # in its completion; [1, T] if all rows agree
    segments: Segments | None = None


def token_scores(
    policy: Transformer,
    batch: CompletionBatch,
    sampling: SamplingParams,
    *,
    logits_chunk_size: int,
    packing: Packing | None = None,
    capture_layer: int | None = None,
) -> TokenScores:
    """Returns log pi(token) and H(pi) under the distribution that was sampled from.

    Logits [B, C, V] exist for C = `logits_chunk_size` positions at a time; 0 chooses C
    such that they hold at most 2^24 numbers, 2^23 on a CPU. Each prompt is read once
    for its whole group. Gradients flow through log-probabilities and entropies, not
    through the residual stream of `capture_layer`.

    With a `packing` the pass runs over packed rows; the result is still by completion.
    """
    P, T = batch.prompt_tokens.shape[0], batch.tokens.shape[1]
    rows = _rows(batch.tokens, packing, P)
    # The hidden state of one token scores the next; the last token's scores nothing. If
    # the sequence is split over devices, it is computed too: T - 1 would not divide.
    last = None if policy.config.sequence_parallel else -1
    states = policy.hidden_states(
        batch.prompt_tokens,
        batch.prompt_lengths,
        rows.tokens[:, :last],
        segments=jax.tree.map(lambda x_UT: x_UT[:, :last], rows.segments),
        capture_layers=() if capture_layer is None else (capture_layer,),
    )
    hidden_UTD = jnp.concatenate(
        [states.first[:, None], states.completions.hidden[:, : T - 1]], axis=1
    )
    if packing is not None:  # any column may be a completion's first
        is_first_UT1 = (rows.index == 0)[:, :, None]
        hidden_UTD = jnp.where(is_first_UT1, states.first[:, None], hidden_UTD)
    scores = _score_in_chunks(
        policy, hidden_UTD, rows, sampling=sampling, logits_chunk_size=logits_chunk_size
    )
    if packing is not None:
        scores = jax.tree.map(lambda x_UT: unpack(x_UT, packing, P), scores)
    if capture_layer is None:
        return scores
    # Without a barrier, reading the stream could change how the rest is compiled.
    stream_UTD = jax.lax.optimization_barrier(
        jax.lax.stop_gradient(states.completions.captured[0][:, : T - 1])
    )
    if packing is None:
        return dataclasses.replace(scores, residual=stream_UTD)
    whole_UTD = jnp.pad(stream_UTD, ((0, 0), (0, 1), (0, 0)))
    stream_BTD = unpack(whole_UTD, packing, P)[:, : T - 1]
    return dataclasses.replace(scores, residual=stream_BTD)


def _rows(tokens_BT: jax.Array, packing: Packing | None, P: int) -> _Rows:
    T = tokens_BT.shape[1]
    if packing is None:
        return _Rows(tokens=tokens_BT, index=jnp.arange(T, dtype=jnp.int32)[None])
    is_token_UT = packing.source >= 0
    segments = Segments(
        ids=jnp.where(is_token_UT, packing.source // T, -1),
        index=jnp.where(is_token_UT, packing.source % T, 0),
    )
    tokens_UT = pack_tokens(tokens_BT, packing, P)
    return _Rows(tokens=tokens_UT, index=segments.index, segments=segments)


def _score_in_chunks(
    policy: Transformer,
    hidden_BTD: jax.Array,
    rows: _Rows,
    *,
    sampling: SamplingParams,
    logits_chunk_size: int,
) -> TokenScores:
    B, T, D = hidden_BTD.shape
    tokens_BT = rows.tokens
    index_BT = jnp.broadcast_to(rows.index, (B, T))
    width = logits_chunk_size or balanced_width(
        B, T, policy.vocab_size, on_cpu=mesh_platform() == "cpu"
    )
    if width >= T:
        chunk = (hidden_BTD, tokens_BT, index_BT)
        return _score_chunk(policy, sampling, policy.output_table, chunk)
    count = -(-T // width)
    extra = count * width - T
    hidden_BTD = jnp.pad(hidden_BTD, ((0, 0), (0, extra), (0, 0)))
    chunks = (
        hidden_BTD.reshape(B, count, width, D).swapaxes(0, 1),
        *(
            jnp.pad(x_BT, ((0, 0), (0, extra))).reshape(B, count, width).swapaxes(0, 1)
            for x_BT in (tokens_BT, index_BT)
        ),
    )
    # In float32, because the backward pass sums the chunks' gradients in this dtype.
    table_VD = policy.output_table.astype(jnp.float32)
    score = jax.checkpoint(functools.partial(_score_chunk, policy, sampling, table_VD))
    scores = jax.lax.map(score, chunks)
    return jax.tree.map(
        lambda x_CBW: x_CBW.swapaxes(0, 1).reshape(B, -1)[:, :T], scores
    )


def balanced_width(rows: int, length: int, vocab_size: int, *, on_cpu: bool) -> int:
    """Returns the positions of a chunk: nearly equal chunks need the least padding.

    If 42 of 48 positions fit, two chunks of 42 would score 36 positions of padding.
    """
    most = _MAX_LOGITS_ON_CPU if on_cpu else _MAX_LOGITS
    widest = max(1, most // (rows * vocab_size))
    num_chunks = -(-length // widest)
    return -(-length // max(1, num_chunks))


def _score_chunk(
    policy: Transformer,
    sampling: SamplingParams,
    table_VD: jax.Array,
    chunk: tuple[jax.Array, jax.Array, jax.Array],
) -> TokenScores:
    """Returns the scores of one chunk of positions, from the output layer's matrix."""
    hidden_BTD, tokens_BT, index_BT = chunk
    B, T = tokens_BT.shape
    logits_CV = policy.logits(hidden_BTD, table_VD).reshape(B * T, -1)
    index_C = index_BT.reshape(-1)
    token_C = tokens_BT.reshape(-1)
    kept_CV = sampling_logits(
        logits_CV,
        index_C,
        sampling,
        eos_ids=policy.eos_ids,
        num_real_tokens=policy.num_real_tokens,
        sampled_tokens=token_C,
    )
    logprob_CV = jax.nn.log_softmax(kept_CV)
    drawn_C1 = jnp.take_along_axis(logprob_CV, token_C[:, None], axis=-1)
    entropy_C = -(jnp.exp(logprob_CV) * logprob_CV).sum(axis=-1)
    return TokenScores(
        logprobs=drawn_C1.reshape(B, T), entropies=entropy_C.reshape(B, T)
    )
