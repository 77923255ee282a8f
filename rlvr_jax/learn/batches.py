"""Rollouts and worked solutions -> the batches of optimizer steps.

Token weights are made on a whole minibatch, then the minibatch is cut by length: every
micro-batch is as narrow as its longest completion allows, and their sum is the loss of
the whole.
"""

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np

from job_jax.processes import on_host
from rlvr_jax.learn.losses import aggregation_weights
from rlvr_jax.types import Batch, Guidance, Prompts, Rollouts


def rollout_batch(
    rollouts: Rollouts,
    advantages_PG: np.ndarray,
    *,
    bands_P: np.ndarray | None = None,
    guidance: Guidance | None = None,
) -> Batch:
    """Returns rollouts (in NumPy) as one batch, token weights yet to be set.

    The sampler's log-probabilities are the old ones; there are none of a reference.
    Given each group's band (an index into BANDS, or -1), sums are cut by it.
    """
    B = len(rollouts.lengths)
    bands_B = _no_bands(B)
    if bands_P is not None:
        bands_B = np.repeat(bands_P, B // len(bands_P)).astype(np.int32)
    zeros_BT = np.zeros(rollouts.tokens.shape, np.float32)
    return Batch(
        prompt_tokens=rollouts.prompts.tokens,
        prompt_lengths=rollouts.prompts.lengths,
        tokens=rollouts.tokens,
        lengths=rollouts.lengths,
        token_weights=zeros_BT,
        advantages=advantages_PG.reshape(-1),
        old_logprobs=rollouts.logprobs,
        ref_logprobs=zeros_BT,
        bands=bands_B,
        guidance=guidance,
    )


def solution_batch(
    prompts: Prompts, tokens_BT: np.ndarray, lengths_B: np.ndarray
) -> Batch:
    """Returns worked solutions, one for each prompt, as one batch without weights."""
    zeros_BT = np.zeros(tokens_BT.shape, np.float32)
    return Batch(
        prompt_tokens=prompts.tokens,
        prompt_lengths=prompts.lengths,
        tokens=tokens_BT,
        lengths=lengths_B,
        token_weights=zeros_BT,
        advantages=np.zeros(len(lengths_B), np.float32),
        old_logprobs=zeros_BT,
        ref_logprobs=zeros_BT,
        bands=_no_bands(len(lengths_B)),
    )


def _no_bands(rows: int) -> np.ndarray:
    """Returns the bands of rows of which no account is kept."""
    return np.full(rows, -1, np.int32)


def minibatches(batch: Batch, count: int) -> Iterator[Batch]:
    """Yields `count` equal parts of a batch, whole groups in the order they stand."""
    P = len(batch.prompt_lengths)
    for groups_Q in np.split(np.arange(P), count):
        yield take_groups(batch, groups_Q)


def weighted(batch: Batch, *, aggregation: str, max_length: int) -> Batch:
    """Returns the minibatch with the token weights of its loss aggregation.

    Tokens that are not `kept` weigh nothing.
    """
    weights_BT = _weights(
        batch.lengths,
        kept=batch.kept,
        width=batch.tokens.shape[1],
        aggregation=aggregation,
        max_length=max_length,
    )
    return dataclasses.replace(batch, token_weights=on_host(weights_BT), kept=None)


_weights = jax.jit(
    aggregation_weights, static_argnames=("width", "aggregation", "max_length")
)


def micro_batches(batch: Batch, count: int, *, bucket: int) -> Iterator[Batch]:
    """Yields `count` equal parts, groups sorted by length and trimmed to a bucket.

    Widths are multiples of `bucket`, so that a run meets few shapes.
    """
    P = len(batch.prompt_lengths)
    longest_P = batch.lengths.reshape(P, -1).max(axis=1)
    order_P = np.argsort(longest_P, kind="stable") if count > 1 else np.arange(P)
    for groups_Q in np.split(order_P, count):
        part = take_groups(batch, groups_Q)
        width = -(-int(part.lengths.max()) // bucket) * bucket
        yield trim(part, min(width, batch.tokens.shape[1]))


def keep_forks(batch: Batch, entropies_BT: np.ndarray, *, share: float) -> Batch:
    """Returns the batch with the `share` of its tokens kept that have most entropy.

    Of n true tokens the round(share * n) of highest entropy, at least one, and every
    token that ties with the last of them: the choice depends on no order. The idea is
    that of https://arxiv.org/abs/2506.01939.
    """
    index_T = np.arange(batch.tokens.shape[1])
    mask_BT = index_T[None] < batch.lengths[:, None]
    entropy_N = np.sort(entropies_BT[mask_BT])
    count = max(1, round(share * len(entropy_N)))
    kept_BT = mask_BT & (entropies_BT >= entropy_N[-count])
    return dataclasses.replace(batch, kept=kept_BT)


def take_groups(batch: Batch, groups_Q: np.ndarray) -> Batch:
    """Returns the groups of the given prompts, all their samples with them."""
    P = len(batch.prompt_lengths)

    def take(array: np.ndarray) -> np.ndarray:
        grouped = array.reshape(P, -1, *array.shape[1:])[groups_Q]
        return grouped.reshape(-1, *array.shape[1:])

    return jax.tree.map(take, batch)


def trim(batch: Batch, width: int) -> Batch:
    """Returns the batch with completions cut to `width` columns of padding or less."""
    told = batch.guidance
    if told is not None:
        told = dataclasses.replace(told, ref_levels=told.ref_levels[:, :width])
    return dataclasses.replace(
        batch,
        guidance=told,
        kept=None if batch.kept is None else batch.kept[:, :width],
        tokens=batch.tokens[:, :width],
        token_weights=batch.token_weights[:, :width],
        old_logprobs=batch.old_logprobs[:, :width],
        ref_logprobs=batch.ref_logprobs[:, :width],
    )
