"""What is recovered is 1 for a perfect copy, 0 for zeros, and in between by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax.sae import TSAE
from sae_jax.splice import splice_sums

# A model of two tokens: the activations are the logits, log 3 for the token it reads.
EMBEDDING = jnp.array([[np.log(3.0), 0.0], [0.0, np.log(3.0)]], jnp.float32)
TOKENS = jnp.array([[0, 0, 1, 1]])
MASK = jnp.array([[True, True, True, False]])


def forward(tokens, mask, edit):
    return edit(EMBEDDING[tokens])


def scaled(share: float) -> TSAE:
    """With f = x where positive; the decoder gives back `share` of it."""
    return TSAE(
        encoder=jnp.eye(2),
        encoder_bias=jnp.zeros(2),
        decoder=share * jnp.eye(2),
        decoder_bias=jnp.zeros(2),
        threshold=jnp.zeros(2),
        group_sizes=(2,),
    )


def test_a_perfect_copy_recovers_everything():
    figures = splice_sums(forward, scaled(1.0), TOKENS, MASK).report()
    assert figures["tokens"] == 2
    assert figures["ce_recovered"] == pytest.approx(1.0, abs=1e-6)
    assert figures["kl_recovered"] == pytest.approx(1.0, abs=1e-6)


def test_zeros_recover_nothing():
    figures = splice_sums(forward, scaled(0.0), TOKENS, MASK).report()
    assert figures["ce_recovered"] == pytest.approx(0.0, abs=1e-6)
    assert figures["kl_recovered"] == pytest.approx(0.0, abs=1e-6)
    assert figures["ce_spliced"] == pytest.approx(np.log(2), rel=1e-6)


def test_losses_by_hand():
    """Two predictions: 0 -> 0 is right with p = 3/4, 0 -> 1 wrong with p = 1/4.

    CE is -(log 3/4 + log 1/4)/2; uniform logits cost log 2 each, and lie at
    KL = 3/4 log(3/2) + 1/4 log(1/2) from the model.
    """
    figures = splice_sums(forward, scaled(0.0), TOKENS, MASK).report()
    assert figures["ce"] == pytest.approx(-(np.log(3 / 4) + np.log(1 / 4)) / 2)
    assert figures["kl_ablated"] == pytest.approx(
        0.75 * np.log(1.5) + 0.25 * np.log(0.5), rel=1e-5
    )


def test_batches_add_up():
    once = splice_sums(forward, scaled(0.5), TOKENS, MASK)
    twice = (once.on_host() + once.on_host()).report()
    single = once.report()
    assert twice.pop("tokens") == 2 * single.pop("tokens")
    assert twice == pytest.approx(single)


def test_only_the_named_places_are_replaced():
    nowhere = jnp.zeros_like(MASK)
    figures = splice_sums(forward, scaled(0.0), TOKENS, MASK, spliced=nowhere).report()
    assert figures["ce_spliced"] == figures["ce_ablated"] == figures["ce"]
    assert np.isnan(figures["ce_recovered"])
