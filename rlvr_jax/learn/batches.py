"""Rollouts and worked solutions -> the batches of optimizer steps.

Loss weights are computed on a whole minibatch, before `learn.micro_batches` splits it,
so the losses of the parts add up to the loss of the whole.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from job_jax.processes import device_get
from rlvr_jax.algorithms.losses import aggregation_weights
from rlvr_jax.algorithms.objective import TokenChoice
from rlvr_jax.types import Batch, ExternalTraces, ProbeTargets, Prompts, Rollouts


def make_batch(
    prompts: Prompts,
    tokens_BT: np.ndarray,
    lengths_B: np.ndarray,
    **arrays: Any,
) -> Batch:
    """Returns a batch of these completions; every array not given is zeros.

    All batches are made here. `bands` are -1 (none) unless given; `with_loss_weights`
    sets the loss weights later.
    """
    zeros_BT = np.zeros(tokens_BT.shape, np.float32)
    defaults = {
        "loss_weights": zeros_BT,
        "advantages": np.zeros(len(lengths_B), np.float32),
        "old_logprobs": zeros_BT,
        "ref_logprobs": zeros_BT,
        "bands": np.full(len(lengths_B), -1, np.int32),
        "on_policy": np.zeros(len(lengths_B), bool),
    }
    return Batch(
        prompt_tokens=prompts.tokens,
        prompt_lengths=prompts.lengths,
        tokens=tokens_BT,
        lengths=lengths_B,
        **{**defaults, **arrays},
    )


def batch_from_rollouts(
    rollouts: Rollouts,
    advantages_PG: np.ndarray,
    *,
    bands_P: np.ndarray | None = None,
    probe_targets: ProbeTargets | None = None,
    external: ExternalTraces | None = None,
    mask_truncated: bool = False,
) -> Batch:
    """Returns rollouts (in NumPy) as a batch; the sampler's logprobs are the old ones.

    If each group's band is given (an index into BANDS, or -1), sums are also split by
    band. With `external`, every group has one more row, the last, whose old logprobs
    are 0. With `mask_truncated`, completions cut by the length limit are left out of
    the loss; no advantage changes, theirs or their group's.
    """
    arrays: dict[str, Any] = {
        "advantages": advantages_PG.reshape(-1),
        "old_logprobs": rollouts.logprobs,
        "policy_mask": rollouts.policy_mask,
        "left_out": ~rollouts.finished if mask_truncated else None,
    }
    tokens_BT, lengths_B = rollouts.tokens, rollouts.lengths
    if external is not None:
        P = len(external.lengths)
        own_B = np.zeros(len(lengths_B), bool)
        left_out = arrays["left_out"]
        if left_out is not None:
            left_out = _append_rows(left_out, np.zeros(P, bool))
        arrays = {
            "left_out": left_out,
            "advantages": _append_rows(arrays["advantages"], external.advantages),
            "old_logprobs": _append_rows(
                rollouts.logprobs, np.zeros(external.tokens.shape, np.float32)
            ),
            "external": _append_rows(own_B, np.ones(P, bool)),
        }
        tokens_BT = _append_rows(tokens_BT, external.tokens)
        lengths_B = _append_rows(lengths_B, external.lengths)
    if bands_P is not None:
        rows_per_group = len(lengths_B) // len(bands_P)
        arrays["bands"] = np.repeat(bands_P, rows_per_group).astype(np.int32)
    return make_batch(
        rollouts.prompts, tokens_BT, lengths_B, probe_targets=probe_targets, **arrays
    )


def _append_rows(array_B: np.ndarray, rows_P: np.ndarray) -> np.ndarray:
    """Returns the groups of `array_B`, each with its row of `rows_P` appended."""
    grouped = array_B.reshape(len(rows_P), -1, *array_B.shape[1:])
    extended = np.concatenate([grouped, rows_P[:, None]], axis=1)
    return extended.reshape(-1, *array_B.shape[1:])


def batch_from_solutions(
    prompts: Prompts,
    tokens_BT: np.ndarray,
    lengths_B: np.ndarray,
    policy_mask_BT: np.ndarray | None = None,
) -> Batch:
    """Returns worked solutions, one for each prompt, as one batch."""
    return make_batch(prompts, tokens_BT, lengths_B, policy_mask=policy_mask_BT)


def abstract_batch(
    *,
    num_prompts: int,
    group_size: int,
    prompt_width: int,
    width: int,
    with_probe: bool = False,
    num_ref_features: int = 0,
    with_external: bool = False,
) -> Batch:
    """Returns the shapes and types of a batch, for tracing or compiling programs.

    `group_size` counts all rows of a group, including an external one. With a
    probe, `num_ref_features` features of the reference policy are in the batch.
    """
    B = num_prompts * group_size

    def make() -> Batch:
        targets = ProbeTargets(
            row=jnp.zeros(B, jnp.int32),
            outcomes=jnp.zeros(B, jnp.int32),
            proxy_eligible=jnp.zeros(B, bool),
            ref_features=(
                jnp.zeros((B, width, num_ref_features)) if num_ref_features else None
            ),
        )
        return make_batch(
            Prompts(
                tokens=jnp.zeros((num_prompts, prompt_width), jnp.int32),
                lengths=jnp.zeros(num_prompts, jnp.int32),
                uid=jnp.zeros(num_prompts, jnp.uint32),
            ),
            np.zeros((B, width), np.int32),
            np.zeros(B, np.int32),
            probe_targets=targets if with_probe else None,
            external=np.zeros(B, bool) if with_external else None,
        )

    return jax.eval_shape(make)


def shuffle_groups(batch: Batch, rng: np.random.Generator) -> Batch:
    """Returns the batch with its groups, all samples included, in a random order."""
    return take_groups(batch, rng.permutation(len(batch.prompt_lengths)))


def split_minibatches(batch: Batch, num_minibatches: int) -> Iterator[Batch]:
    """Yields equal parts of a batch: whole groups, in the batch's order."""
    P = len(batch.prompt_lengths)
    for groups_Q in np.split(np.arange(P), num_minibatches):
        yield take_groups(batch, groups_Q)


def with_loss_weights(
    batch: Batch,
    *,
    aggregation: str,
    max_length: int,
    exclude_zero_variance: bool = False,
) -> Batch:
    """Returns the minibatch with the loss weights of its aggregation.

    Tokens outside `loss_mask`, if there is one, weigh 0, and so do tokens that the
    policy did not write. Rows that are `left_out` count as rows of length 0: they weigh
    nothing, not even in KL and entropy, and no divisor counts them. With
    `exclude_zero_variance` this also holds for groups without an advantage.
    """
    lengths_B = batch.lengths
    if batch.left_out is not None:
        lengths_B = np.where(batch.left_out, 0, lengths_B)
    loss_mask = batch.policy_mask if batch.loss_mask is None else batch.loss_mask
    if exclude_zero_variance:
        P = len(batch.prompt_lengths)
        has_advantage_P = (batch.advantages.reshape(P, -1) != 0).any(axis=1)
        per_row_B = has_advantage_P.repeat(len(lengths_B) // P)
        lengths_B = np.where(per_row_B, lengths_B, 0)
    weights_BT = _jit_loss_weights(
        lengths_B,
        loss_mask=loss_mask,
        width=batch.tokens.shape[1],
        aggregation=aggregation,
        max_length=max_length,
    )
    return dataclasses.replace(
        batch, loss_weights=device_get(weights_BT), loss_mask=None, left_out=None
    )


_jit_loss_weights = jax.jit(
    aggregation_weights, static_argnames=("width", "aggregation", "max_length")
)


def choose_loss_tokens(
    batch: Batch, scores_BT: np.ndarray, *, fraction: float
) -> Batch:
    """Returns the batch with a `loss_mask` of its tokens of highest score.

    Of n true tokens, the loss keeps round(fraction * n), at least one, and every token
    that ties with the last of them, so the order of rows does not matter. Tokens of
    rows that are `left_out` are not among the n. Scored by entropy, this is
    https://arxiv.org/abs/2506.01939.
    """
    mask_BT = batch.mask
    if batch.left_out is not None:
        mask_BT = mask_BT & ~batch.left_out[:, None]
        if not mask_BT.any():
            return dataclasses.replace(batch, loss_mask=mask_BT)
    score_N = np.sort(scores_BT[mask_BT])
    count = max(1, round(fraction * len(score_N)))
    kept_BT = mask_BT & (scores_BT >= score_N[-count])
    return dataclasses.replace(batch, loss_mask=kept_BT)


def score_loss_tokens(
    choice: TokenChoice,
    entropies_BT: np.ndarray,
    mask_BT: np.ndarray,
    *,
    rng: np.random.Generator,
) -> np.ndarray:
    """Returns the scores by which `choice` keeps tokens for the loss.

    Random scores are drawn for true tokens alone, so padding changes none.
    """
    if choice == "random":
        scores_BT = np.zeros(mask_BT.shape)
        scores_BT[mask_BT] = rng.random(int(mask_BT.sum()))
        return scores_BT
    return -entropies_BT if choice == "lowest_entropy" else entropies_BT


def take_groups(batch: Batch, groups_Q: np.ndarray) -> Batch:
    """Returns the groups of the given prompts, with all their samples."""
    P = len(batch.prompt_lengths)

    def take(array: np.ndarray) -> np.ndarray:
        grouped = array.reshape(P, -1, *array.shape[1:])[groups_Q]
        return grouped.reshape(-1, *array.shape[1:])

    return jax.tree.map(take, batch)


def trim_padding(batch: Batch, width: int) -> Batch:
    """Returns the batch with its completions cut to at most `width` columns."""
    prompts = {"prompt_tokens": batch.prompt_tokens}
    trimmed = jax.tree.map(
        lambda array: array[:, :width] if array.ndim > 1 else array,
        dataclasses.replace(batch, prompt_tokens=None),
    )
    return dataclasses.replace(trimmed, **prompts)
