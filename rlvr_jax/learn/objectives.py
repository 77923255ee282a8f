"""What an update minimizes: functions of a scoring pass and its batch."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from rlvr_jax.config import PolicyObjective
from rlvr_jax.learn.batches import abstract_batch
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.losses import policy_loss, zero_band_sums
from rlvr_jax.learn.token_stats import token_stats, zero_token_stats
from rlvr_jax.types import Batch, LossAux

Objective = Callable[[TokenScores, Batch], tuple[Array, LossAux]]


def policy_objective(
    config: PolicyObjective, token_classes: Int[np.ndarray, " V"] | None = None
) -> Objective:
    """Returns the policy loss as a function of scores and batch.

    Token statistics are also split by `token_classes`, the class of every token id.
    """

    def objective(scores: TokenScores, batch: Batch) -> tuple[Array, LossAux]:
        entropies = scores.entropies
        if config.entropy_coef == 0:
            # Only reported: without this, backward would walk all logits times 0.
            entropies = jax.lax.stop_gradient(entropies)
        loss, aux = policy_loss(
            scores.logprobs,
            batch.old_logprobs,
            batch.advantages,
            batch.loss_weights,
            lengths=batch.lengths,
            config=config,
            ref_logprobs=batch.ref_logprobs,
            entropies=entropies,
            bands=batch.bands,
            token_weights=batch.token_weights,
        )
        stats = token_stats(
            scores.logprobs, entropies, batch, token_classes=token_classes
        )
        return loss, dataclasses.replace(aux, token_stats=stats)

    return objective


def supervised_objective(scores: TokenScores, batch: Batch) -> tuple[Array, LossAux]:
    """Returns the negative log-likelihood of the completions, by the loss weights.

    The batch's advantages and old log-probabilities are not read.
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
    """Returns the diagnostics of no tokens, with all the entries of the objective's."""
    zero_BT = jnp.zeros((1, 1), jnp.float32)
    batch = abstract_batch(num_prompts=1, group_size=1, prompt_width=1, width=1)
    _, aux = jax.eval_shape(
        objective, TokenScores(logprobs=zero_BT, entropies=zero_BT), batch
    )
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), aux)
