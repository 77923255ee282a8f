"""What an update minimises, as functions of a scoring pass and its batch."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from rlvr_jax.config import LossConfig
from rlvr_jax.learn.logprobs import Scores
from rlvr_jax.learn.losses import no_sums, policy_loss
from rlvr_jax.learn.token_sums import no_token_sums, token_sums
from rlvr_jax.types import Batch, LossParts

Objective = Callable[[Scores, Batch], tuple[Array, LossParts]]


def policy_objective(
    config: LossConfig, classes: Int[np.ndarray, " V"] | None = None
) -> Objective:
    """Returns the policy loss as a function of scores and batch.

    Its parts are cut by token class where `classes` tells each token's.
    """

    def objective(scores: Scores, batch: Batch) -> tuple[Array, LossParts]:
        entropies = scores.entropies
        if config.entropy_coef == 0:
            # Only reported: without this, backward would walk all logits times 0.
            entropies = jax.lax.stop_gradient(entropies)
        loss, parts = policy_loss(
            scores.logprobs,
            batch.old_logprobs,
            batch.advantages,
            batch.token_weights,
            lengths=batch.lengths,
            config=config,
            ref_logprobs=batch.ref_logprobs,
            entropies=entropies,
            bands=batch.bands,
            credit=batch.credit,
        )
        by_cell = token_sums(scores.logprobs, entropies, batch, classes=classes)
        return loss, dataclasses.replace(parts, by_cell=by_cell)

    return objective


def supervised_objective(scores: Scores, batch: Batch) -> tuple[Array, LossParts]:
    """Returns the negative log-likelihood of the completions, by the token weights.

    The batch's advantages and old log-probabilities are not read.
    """
    inside_BT = batch.token_weights > 0
    logprob_BT = jnp.where(inside_BT, scores.logprobs, 0.0)
    loss = -(batch.token_weights * logprob_BT).sum()
    zero = jnp.float32(0.0)
    return loss, LossParts(
        loss=loss,
        tokens=inside_BT.sum().astype(jnp.float32),
        ratio=zero,
        clip_low=zero,
        clip_high=zero,
        kl=zero,
        entropy=jnp.where(inside_BT, scores.entropies, 0.0).sum(),
        logprob_gap=zero,
        logprob_gap_max=zero,
        by_band=no_sums(),
        by_cell=no_token_sums(),
    )
