"""A change is replicated if the latent's partner has it too, at any index."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.resampling import Interval
from rlvr_jax.analysis.crosscoder.fit import Fitted
from rlvr_jax.analysis.crosscoder.summary import count_replicated
from sae_jax.sae import TSAE
from sae_jax.stats.crosscoder import LatentChanges

Z, D = 24, 96
ROWS = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]


def fitted(rows, confirmed, share):
    """Returns a crosscoder with these decoder rows and these changes of its latents."""
    tsae = dataclasses.replace(
        TSAE.init(0, width=D, latents=len(rows)), decoder=jnp.asarray(rows, jnp.float32)
    )
    changes = LatentChanges(
        norm_share=share,
        scaling_share=Interval(share, share, share),
        cosine=np.ones(len(rows)),
        kind=["kept"] * len(rows),
        alive=np.ones(len(rows), bool),
        confirmed=confirmed,
    )
    return Fitted(tsae, None, changes)


CONFIRMED = np.arange(Z) % 3 == 0  # 8 of 24
SHARE = np.where(np.arange(Z) % 2, 0.9, 0.1)


@pytest.mark.parametrize("seed", range(3))
def test_partners_are_found_by_their_rows_in_any_order(seed):
    order = np.random.default_rng(seed).permutation(Z)
    found = fitted(ROWS[:Z], CONFIRMED, SHARE)
    other = fitted(ROWS[:Z][order], CONFIRMED[order], SHARE[order])
    for one, two in ((found, other), (other, found)):
        assert count_replicated(one, two) == {"replicated": 8, "confirmed": 8}


def test_changes_that_are_unconfirmed_or_opposite_elsewhere_are_not_replicated():
    order = np.random.default_rng(9).permutation(Z)
    found = fitted(ROWS[:Z], CONFIRMED, SHARE)
    # The other crosscoder does not confirm latent 0; latent 3 changed the other way.
    confirmed, share = CONFIRMED.copy(), SHARE.copy()
    confirmed[0], share[3] = False, 1 - share[3]
    other = fitted(ROWS[:Z][order], confirmed[order], share[order])
    assert count_replicated(found, other) == {"replicated": 6, "confirmed": 8}


def test_a_crosscoder_of_other_directions_replicates_nothing():
    """Both confirm every latent, and all of them changed the same way."""
    every, grown = np.ones(Z, bool), np.full(Z, 0.9)
    found = fitted(ROWS[:Z], every, grown)
    noise = np.random.default_rng(1).normal(size=(Z, D))
    for rows in (ROWS[Z : 2 * Z], noise / np.linalg.norm(noise, axis=1)[:, None]):
        assert count_replicated(found, fitted(rows, every, grown))["replicated"] == 0
