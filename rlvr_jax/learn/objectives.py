"""The objectives that updates minimize: functions of a scoring pass and its batch."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from rlvr_jax.algorithms.losses import (
    CLIPPED,
    external_loss,
    policy_loss,
    zero_band_sums,
)
from rlvr_jax.algorithms.surrogates import truncated_weights
from rlvr_jax.algorithms.token_stats import token_stats, zero_token_stats
from rlvr_jax.config import PolicyObjective
from rlvr_jax.learn.batches import abstract_batch
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.types import Batch, LossAux

Objective = Callable[[TokenScores, Batch], tuple[Array, LossAux]]


def policy_objective(
    config: PolicyObjective, token_classes: Int[np.ndarray, " V"] | None = None
) -> Objective:
    """Returns the policy loss as a function of scores and batch.

    In on-policy rows the old policy is the policy itself, as a constant in the
    gradient: ratios are exactly 1 and change as the log-probabilities do. With
    `tis_cap`, gains are weighted by the ratio of old policy to sampler. Token
    statistics are also split by `token_classes`, the class of every token id. External
    rows add to the loss and to their own sums, and to no other reported number.
    """

    def objective(scores: TokenScores, batch: Batch) -> tuple[Array, LossAux]:
        entropies = scores.entropies
        if config.entropy_coef == 0:
            # Only reported: otherwise backward would go through all logits times 0.
            entropies = jax.lax.stop_gradient(entropies)
        own_BT = jax.lax.stop_gradient(scores.logprobs)
        old_BT = batch.old_logprobs
        if batch.on_policy is not None:
            old_BT = jnp.where(batch.on_policy[:, None], own_BT, old_BT)
        extra_loss, external_sums = _external_terms(
            scores.logprobs, old_BT, batch, config=config
        )
        batch = batch.without_external()
        batch, tis_sums = _weigh_sampler(old_BT, batch, cap=config.tis_cap)

        def loss_over(logprobs: Array, old_logprobs: Array) -> tuple[Array, LossAux]:
            return policy_loss(
                logprobs,
                old_logprobs,
                batch.advantages,
                batch.loss_weights,
                lengths=batch.lengths,
                config=config,
                ref_logprobs=batch.ref_logprobs,
                entropies=entropies,
                bands=batch.bands,
                token_weights=batch.token_weights,
                policy_mask=batch.policy_mask,
            )

        loss, aux = loss_over(scores.logprobs, old_BT)
        # For on-policy rows: the clipping that later steps will see.
        _, by_given = loss_over(own_BT, batch.old_logprobs)
        mismatch_BT = _mask(jnp.abs(own_BT - _sampler_logprobs(batch)), batch)
        loss += extra_loss
        return loss, dataclasses.replace(
            aux,
            loss=loss,
            external_sums=external_sums,
            scalars=aux.scalars | tis_sums | _clipped_sum(by_given),
            logprob_mismatch=mismatch_BT.sum(),
            logprob_mismatch_max=mismatch_BT.max(),
            token_stats=token_stats(
                scores.logprobs, entropies, batch, token_classes=token_classes
            ),
        )

    return objective


def _external_terms(
    logprobs_BT: Array, old_BT: Array, batch: Batch, *, config: PolicyObjective
) -> tuple[Array, Array | None]:
    """Returns the external rows' part of the loss, and their sums if there are any."""
    if not config.has_external_traces:
        return jnp.float32(0.0), None
    lengths_B = jnp.zeros_like(batch.lengths)
    if batch.external is not None:
        lengths_B = jnp.where(batch.external, batch.lengths, 0)
    return external_loss(
        logprobs_BT, old_BT, batch.advantages, batch.loss_weights, lengths=lengths_B
    )


def _weigh_sampler(
    old_BT: Array, batch: Batch, *, cap: float
) -> tuple[Batch, dict[str, Array]]:
    """Returns the batch, its token weights times truncated ratios, and sums of these.

    With a cap of 0 the batch stays as it is and there are no sums.
    """
    if cap == 0:
        return batch, {}
    weight_BT, truncated_BT = truncated_weights(
        _mask(old_BT - _sampler_logprobs(batch), batch), cap=cap
    )
    sums = {
        "tis_weight": _mask(weight_BT, batch).sum(),
        "tis_truncated": _mask(truncated_BT, batch).sum(),
    }
    if batch.token_weights is not None:
        weight_BT *= batch.token_weights
    return dataclasses.replace(batch, token_weights=weight_BT), sums


def _clipped_sum(aux: LossAux) -> dict[str, Array]:
    """Returns the clipped tokens as mismatch_clipped; nothing if none can be."""
    clipped = [aux.scalars[name] for name in CLIPPED if name in aux.scalars]
    return {"mismatch_clipped": sum(clipped)} if clipped else {}


def _sampler_logprobs(batch: Batch) -> Array:
    """Returns the log-probabilities under the policy that drew the tokens."""
    if batch.sampler_logprobs is None:
        return batch.old_logprobs
    return batch.sampler_logprobs


def _mask(values: Array, batch: Batch) -> Array:
    """Returns the values in float32 at true tokens and 0 elsewhere."""
    return jnp.where(batch.mask, values.astype(jnp.float32), 0.0)


def supervised_objective(scores: TokenScores, batch: Batch) -> tuple[Array, LossAux]:
    """Returns the negative log-likelihood of the completions, with the loss weights.

    The batch's advantages and old log-probabilities are ignored.
    """
    mask_BT = batch.loss_weights > 0
    logprob_BT = jnp.where(mask_BT, scores.logprobs, 0.0)
    loss = -(batch.loss_weights * logprob_BT).sum()
    return loss, LossAux(
        loss=loss,
        tokens=mask_BT.sum().astype(jnp.float32),
        scalars={"entropy": jnp.where(mask_BT, scores.entropies, 0.0).sum()},
        logprob_mismatch=jnp.float32(0.0),
        logprob_mismatch_max=jnp.float32(0.0),
        by_band=zero_band_sums(),
        token_stats=zero_token_stats(),
    )


def zero_aux(objective: Objective) -> LossAux:
    """Returns the diagnostics of no tokens, with all entries of the objective."""
    zero_BT = jnp.zeros((1, 1), jnp.float32)
    batch = abstract_batch(num_prompts=1, group_size=1, prompt_width=1, width=1)
    _, aux = jax.eval_shape(
        objective, TokenScores(logprobs=zero_BT, entropies=zero_BT), batch
    )
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), aux)
