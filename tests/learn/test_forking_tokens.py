"""Tokens left out of the loss get no gradient; the loss is a mean of the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.algorithms.losses import aggregation_weights, policy_loss
from rlvr_jax.config import LossConfig


@pytest.mark.parametrize("clipping", ["ppo", "cispo", "reinforce"])
def test_tokens_left_out_get_no_gradient_from_any_term(clipping):
    """The value is a float64 mean over the kept tokens, at ratio 1 and d = 0.5."""
    random = np.random.RandomState(0)
    lengths = np.array([3, 5, 1, 4])
    mask = np.arange(6) < lengths[:, None]
    kept = mask & (random.uniform(size=mask.shape) < 0.5)
    assert 0 < kept.sum() < mask.sum()
    advantages = random.standard_normal(4)
    entropies = random.exponential(size=mask.shape)
    logprobs = -random.exponential(size=mask.shape).astype(np.float32)
    weights = aggregation_weights(
        jnp.asarray(lengths),
        width=6,
        aggregation="token_mean",
        max_length=6,
        loss_mask=jnp.asarray(kept),
    )

    def loss(logprobs, entropies):
        return policy_loss(
            logprobs,
            jax.lax.stop_gradient(logprobs),
            jnp.float32(advantages),
            weights,
            lengths=jnp.asarray(lengths),
            config=LossConfig(surrogate=clipping, kl_coef=0.3, entropy_coef=0.2),
            ref_logprobs=jax.lax.stop_gradient(logprobs) + 0.5,
            entropies=entropies,
        )[0]

    value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(
        jnp.asarray(logprobs), jnp.float32(entropies)
    )
    surrogate = np.float64(logprobs if clipping == "cispo" else 1.0)
    kl = np.exp(0.5) - 0.5 - 1
    terms = -surrogate * advantages[:, None] + 0.3 * kl - 0.2 * entropies
    assert float(value) == pytest.approx(terms[kept].mean(), rel=1e-5)
    for gradient in gradients:
        assert (np.asarray(gradient) != 0)[kept].all()
        assert not np.asarray(gradient)[~kept].any()
