"""Tokens that the policy did not write are read, but in no ratio, mean or gradient.

The oracle: a row with an environment's tokens has the same loss as the row without
them, for every aggregation and ratio.
"""

import dataclasses
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.algorithms.objective import Aggregation
from rlvr_jax.config import LossConfig, RFGOConfig
from rlvr_jax.learn.batches import choose_loss_tokens, with_loss_weights
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.objectives import policy_objective, supervised_objective
from rlvr_jax.learn.rfgo import apply_rfgo
from rlvr_jax.types import Batch, ProbeTargets, ReasoningFeatures

B, T = 4, 9
LENGTHS = np.array([9, 6, 3, 8], np.int32)
# The policy has turns at both ends and between; row 2 has one turn.
BY_POLICY = np.array(
    [
        [1, 1, 0, 0, 1, 1, 1, 0, 1],
        [1, 0, 0, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 1, 0, 0, 1, 1, 0],
    ],
    bool,
)
IN_ROW = np.arange(T) < LENGTHS[:, None]
MASK = BY_POLICY & IN_ROW
FIELDS = ("tokens", "old_logprobs", "ref_logprobs", "sampler_logprobs")


def _scores(seed=0):
    random = np.random.RandomState(seed)
    return TokenScores(
        logprobs=np.float32(-random.exponential(size=(B, T))),
        entropies=np.float32(random.exponential(size=(B, T))),
    )


def _batch(seed=1, **changes):
    random = np.random.RandomState(seed)
    noise = np.float32(-random.exponential(size=(3, B, T)))
    return Batch(
        prompt_tokens=np.ones((2, 3), np.int32),
        prompt_lengths=np.array([3, 2], np.int32),
        tokens=random.randint(2, 9, (B, T)).astype(np.int32),
        lengths=LENGTHS,
        loss_weights=np.zeros((B, T), np.float32),
        advantages=np.float32([1.5, -0.8, 0.7, -1.2]),
        old_logprobs=noise[0],
        ref_logprobs=noise[1],
        sampler_logprobs=noise[2],
        bands=np.int32([0, 0, 1, 1]),
        **{"policy_mask": BY_POLICY, **changes},
    )


def _without_environment(batch, scores):
    """Returns both without the environment's tokens; the rest moves up."""

    def cut(array):
        out = np.zeros_like(array)
        for b in range(B):
            kept = array[b][MASK[b]]
            out[b, : len(kept)] = kept
        return out

    fields = {name: cut(vars(batch)[name]) for name in FIELDS}
    return (
        dataclasses.replace(
            batch, lengths=MASK.sum(axis=1).astype(np.int32), policy_mask=None, **fields
        ),
        TokenScores(logprobs=cut(scores.logprobs), entropies=cut(scores.entropies)),
    )


@pytest.mark.parametrize("level", ["token", "sequence", "trajectory"])
@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_an_episode_has_the_loss_of_what_the_policy_wrote(aggregation, level):
    config = LossConfig(
        importance_sampling_level=level,
        aggregation=aggregation,
        kl_coef=0.3,
        entropy_coef=0.2,
        tis_cap=2.0,
    )
    objective = policy_objective(config, np.arange(9) % 8)
    found = []
    scores = _scores()
    for batch, given in ((_batch(), scores), _without_environment(_batch(), scores)):
        weighted = with_loss_weights(batch, aggregation=aggregation, max_length=T)
        value, gradient = jax.value_and_grad(
            lambda logprobs, given=given, weighted=weighted: objective(
                dataclasses.replace(given, logprobs=logprobs), weighted
            ),
            has_aux=True,
        )(jnp.asarray(given.logprobs))
        found.append((value, np.asarray(gradient)))
    ((loss, aux), gradient), ((cut_loss, cut_aux), cut_gradient) = found
    assert float(loss) == pytest.approx(float(cut_loss), rel=1e-5)
    assert (gradient[MASK] != 0).all()
    assert not gradient[~MASK].any()
    in_order = np.concatenate([cut_gradient[b, : MASK[b].sum()] for b in range(B)])
    np.testing.assert_allclose(gradient[MASK], in_order, rtol=1e-4, atol=1e-7)
    assert float(aux.tokens) == float(cut_aux.tokens) == MASK.sum()
    for name in aux.scalars:
        np.testing.assert_allclose(
            aux.scalars[name], cut_aux.scalars[name], rtol=1e-4, err_msg=name
        )
    assert float(aux.logprob_mismatch) == pytest.approx(
        float(cut_aux.logprob_mismatch), rel=1e-5
    )
    assert float(aux.logprob_mismatch_max) == float(cut_aux.logprob_mismatch_max)
    np.testing.assert_allclose(aux.by_band, cut_aux.by_band, rtol=1e-4)
    # Deciles count within the episode; classes do not depend on the position.
    classes = np.asarray(aux.token_stats)[:, 10:]
    np.testing.assert_allclose(
        classes, np.asarray(cut_aux.token_stats)[:, 10:], rtol=1e-4, atol=1e-6
    )


def test_nothing_at_an_environments_token_is_read():
    objective = policy_objective(LossConfig(kl_coef=0.3, entropy_coef=0.2, tis_cap=2.0))
    values = []
    for filler in (0.0, np.nan):
        scores, batch = _scores(), _batch()
        batch = dataclasses.replace(
            batch,
            **{
                name: np.where(MASK, vars(batch)[name], np.float32(filler))
                for name in FIELDS[1:]
            },
        )
        weighted = with_loss_weights(batch, aggregation="token_mean", max_length=T)
        given = jnp.where(MASK, scores.logprobs, filler)

        def loss(logprobs, weighted=weighted, filler=filler, scores=scores):
            entropies = jnp.where(MASK, scores.entropies, filler)
            return objective(
                TokenScores(logprobs=logprobs, entropies=entropies), weighted
            )[0]

        values.append(jax.value_and_grad(loss)(given))
    (zero, zero_gradient), (nan, nan_gradient) = values
    assert float(zero) == float(nan)
    np.testing.assert_array_equal(zero_gradient, nan_gradient)


def test_a_worked_episode_is_fitted_only_at_the_policys_tokens():
    scores = _scores()
    weighted = with_loss_weights(_batch(), aggregation="token_mean", max_length=1)
    loss, aux = supervised_objective(scores, weighted)
    assert float(loss) == pytest.approx(
        -np.float64(scores.logprobs)[MASK].mean(), rel=1e-5
    )
    assert float(aux.tokens) == MASK.sum()


def test_tokens_of_high_entropy_are_chosen_among_the_policys():
    entropies = np.where(BY_POLICY, 1.0, 5.0) + np.arange(T)
    batch = choose_loss_tokens(_batch(), entropies, fraction=0.5)
    assert not (batch.loss_mask & ~MASK).any()
    assert batch.loss_mask.sum() == pytest.approx(0.5 * MASK.sum(), abs=2)
    weighted = with_loss_weights(batch, aggregation="token_mean", max_length=T)
    np.testing.assert_array_equal(weighted.loss_weights > 0, batch.loss_mask)


@pytest.mark.parametrize("token_score", ["temporal_diff", "activation"])
def test_features_are_read_at_the_policys_tokens_alone(token_score):
    random = np.random.RandomState(3)
    f_BTR = np.float32(random.exponential(size=(B, T, 2)))
    targets = ProbeTargets(
        row=np.arange(B, dtype=np.int32),
        outcomes=np.array([0, 1, 0, 0], np.int32),
        proxy_eligible=np.ones(B, bool),
        ref_features=None,
    )
    features = ReasoningFeatures(
        weights=np.float32([0.5, -0.5]),
        scale=np.float32([1.0, 2.0]),
        proxy_strength=np.float32(0.1),
        key=jax.random.key(0),
    )
    found = []
    for filler in (0.0, 1e6):
        f = np.where(BY_POLICY[:, :, None], f_BTR, np.float32(filler))
        batch, sums = apply_rfgo(
            jnp.asarray(f),
            _batch(probe_targets=targets),
            features,
            config=RFGOConfig(lambda_w=0.5, lambda_p=0.1, token_score=token_score),
            shuffle_weights=False,
        )
        found.append((batch.token_weights, batch.advantages, sums))
    jax.tree.map(np.testing.assert_array_equal, *found)
    weights = np.asarray(found[0][0])
    assert not weights[~MASK].any()
    np.testing.assert_allclose(weights.sum(axis=1), MASK.sum(axis=1), rtol=1e-5)
    has_activation = MASK & (np.arange(T) < LENGTHS[:, None] - 1)
    assert float(found[0][2].num_tokens) == has_activation.sum()
