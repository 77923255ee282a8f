"""Log-probabilities and entropies of completions, without the array of all logits.

Logits of 4,096 positions over a vocabulary of 151,936 fill 2.5 GB in float32. Here they
exist for a chunk of positions at a time, in the forward pass and in the backward pass.
"""

import dataclasses
import functools
from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlvr_jax.models.distribution import Sampling, sampling_logits
from rlvr_jax.models.transformer import Edit, Transformer

# Logits that may exist at once when the chunk is left to us: 64 MB in float32.
_LOGITS_AT_ONCE = 1 << 24


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """What a scoring pass says of every completion token; rubbish beyond the lengths.

    Written by `token_scores`, read by the losses and the loop's metrics. `stream`,
    where a layer was tapped, is the residual stream after it at the tokens 0..T-2.
    """

    logprobs: Float[Array, " B T"]
    entropies: Float[Array, " B T"]
    stream: Float[Array, " B T D"] | None = None


class Texts(Protocol):
    """Completions in groups, as `Batch` holds them: B a multiple of P."""

    @property
    def prompt_tokens(self) -> Int[Array, " P S"]:
        """Returns the prompts, padded on the right."""
        ...

    @property
    def prompt_lengths(self) -> Int[Array, " P"]:
        """Returns their lengths."""
        ...

    @property
    def tokens(self) -> Int[Array, " B T"]:
        """Returns the completions, padded on the right."""
        ...


def token_scores(
    policy: Transformer,
    batch: Texts,
    sampling: Sampling,
    *,
    chunk: int,
    tap: int | None = None,
    edit: Edit | None = None,
) -> Scores:
    """Returns log pi(token) and H(pi) under the distribution that was sampled from.

    `chunk` is the number of positions T whose [B, chunk, V] logits exist at once, 0 to
    have it chosen so that they hold at most 2^24 numbers. Prompts are read once and
    shared by their groups. Gradients flow through log-probabilities and entropies; the
    stream after layer `tap` is a constant. `edit` changes the completions' stream.
    """
    S = batch.prompt_tokens.shape[1]
    mask_PS = jnp.arange(S, dtype=jnp.int32)[None] < batch.prompt_lengths[:, None]
    layers = policy.layers()
    prompt, prefix = policy.prefill(batch.prompt_tokens, mask_PS, layers=layers)
    last_P11 = batch.prompt_lengths[:, None, None] - 1
    last_P1D = jnp.take_along_axis(prompt.hidden, last_P11, axis=1)
    G = batch.tokens.shape[0] // batch.prompt_tokens.shape[0]
    first_B1D = jnp.repeat(last_P1D, G, axis=0)
    # The hidden state of one token scores the next; the last token's scores nothing.
    taps = () if tap is None else (tap,)
    # Split over devices, the last is read all the same, for T - 1 would not divide.
    last = None if policy.config.shard_sequence else -1
    rest = policy.extend(
        batch.tokens[:, :last], prefix, layers=layers, taps=taps, edit=edit
    )
    T = batch.tokens.shape[1]
    hidden_BTD = jnp.concatenate([first_B1D, rest.hidden[:, : T - 1]], axis=1)
    scores = _in_chunks(
        policy, hidden_BTD, batch.tokens, sampling=sampling, chunk=chunk
    )
    if tap is None:
        return scores
    # A barrier, so that what reads the stream cannot change how the rest is compiled.
    stream_BTD = jax.lax.optimization_barrier(
        jax.lax.stop_gradient(rest.taps[0][:, : T - 1])
    )
    return dataclasses.replace(scores, stream=stream_BTD)


def _in_chunks(
    policy: Transformer,
    hidden_BTD: jax.Array,
    tokens_BT: jax.Array,
    *,
    sampling: Sampling,
    chunk: int,
) -> Scores:
    B, T, D = hidden_BTD.shape
    width = chunk or max(1, _LOGITS_AT_ONCE // (B * policy.vocab_size))
    if width >= T:
        index_T = jnp.arange(T, dtype=jnp.int32)
        return _score(policy, sampling, (hidden_BTD, tokens_BT, index_T))
    count = -(-T // width)
    extra = count * width - T
    hidden_BTD = jnp.pad(hidden_BTD, ((0, 0), (0, extra), (0, 0)))
    tokens_BT = jnp.pad(tokens_BT, ((0, 0), (0, extra)))
    chunks = (
        hidden_BTD.reshape(B, count, width, D).swapaxes(0, 1),
        tokens_BT.reshape(B, count, width).swapaxes(0, 1),
        jnp.arange(count * width, dtype=jnp.int32).reshape(count, width),
    )
    score = jax.checkpoint(functools.partial(_score, policy, sampling))
    scores = jax.lax.map(score, chunks)
    return jax.tree.map(
        lambda x_CBW: x_CBW.swapaxes(0, 1).reshape(B, -1)[:, :T], scores
    )


def _score(
    policy: Transformer,
    sampling: Sampling,
    chunk: tuple[jax.Array, jax.Array, jax.Array],
) -> Scores:
    """Returns the scores of one chunk; its logits die with it."""
    hidden_BTD, tokens_BT, index_T = chunk
    B, T = tokens_BT.shape
    logits_CV = policy.logits(hidden_BTD).reshape(B * T, -1)
    index_C = jnp.broadcast_to(index_T[None], (B, T)).reshape(-1)
    token_C = tokens_BT.reshape(-1)
    kept_CV = sampling_logits(
        logits_CV,
        index_C,
        sampling,
        eos_ids=policy.eos_ids,
        known_ids=policy.known_ids,
        drawn=token_C,
    )
    logprob_CV = jax.nn.log_softmax(kept_CV)
    drawn_C1 = jnp.take_along_axis(logprob_CV, token_C[:, None], axis=-1)
    entropy_C = -(jnp.exp(logprob_CV) * logprob_CV).sum(axis=-1)
    return Scores(logprobs=drawn_C1.reshape(B, T), entropies=entropy_C.reshape(B, T))
