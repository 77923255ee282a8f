"""Truncated completions left out of the loss, against float64 NumPy and deletion.

Tests that delete rows use groups of one completion, so the rest is still a batch.
Gradients of the reference are central differences.
"""

import dataclasses
import functools
from typing import get_args

import jax
import numpy as np
import pytest

from rlvr_jax.algorithms.objective import Aggregation
from rlvr_jax.config import LossConfig
from rlvr_jax.learn.batches import (
    batch_from_rollouts,
    choose_loss_tokens,
    take_groups,
    with_loss_weights,
)
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.micro_batches import (
    MicroBatchCut,
    plan_micro_batches,
    split_micro_batches,
)
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.types import ExternalTraces, Prompts, Rollouts

B, T = 6, 5
MAX_LENGTH = 8
LENGTHS = np.array([5, 1, 3, 5, 2, 4], np.int32)
FINISHED = np.array([False, True, True, False, True, True])
MASK = np.arange(T) < LENGTHS[:, None]
LEARNS = MASK & FINISHED[:, None]
ADVANTAGES = np.array([1.5, -0.7, -1.2, 0.4, -0.3, 0.9])
RANDOM = np.random.RandomState(5)
LOGPROBS = -RANDOM.uniform(0.2, 4.0, (B, T))
OLD = LOGPROBS - RANDOM.uniform(-1.0, 1.0, (B, T))
REF = LOGPROBS - RANDOM.uniform(-1.0, 1.0, (B, T))
ENTROPIES = RANDOM.uniform(0.1, 2.0, (B, T))
TOKEN_WEIGHTS = RANDOM.uniform(0.5, 2.0, (B, T))  # as RFGO sets them
AGGREGATIONS = get_args(Aggregation)
every_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)


def _rollouts(*, prompts=B, finished=FINISHED):
    return Rollouts(
        prompts=Prompts(
            tokens=np.ones((prompts, 1), np.int32),
            lengths=np.ones(prompts, np.int32),
            uid=np.arange(prompts, dtype=np.uint32),
        ),
        tokens=np.where(MASK, 5, 0).astype(np.int32),
        lengths=LENGTHS,
        logprobs=np.where(MASK, OLD, 0.0).astype(np.float32),
        finished=finished,
        weight_version=np.int32(0),
    )


def _batch(*, masks=True, **rollouts):
    batch = batch_from_rollouts(
        _rollouts(**rollouts),
        ADVANTAGES.astype(np.float32).reshape(-1, 1),
        mask_truncated=masks,
    )
    return dataclasses.replace(
        batch,
        ref_logprobs=np.float32(REF),
        token_weights=np.float32(TOKEN_WEIGHTS),
    )


def _config(aggregation, **changed):
    return LossConfig(aggregation=aggregation, kl_coef=0.3, entropy_coef=0.2, **changed)


def _weigh(batch, config):
    return with_loss_weights(
        batch, aggregation=config.aggregation, max_length=MAX_LENGTH
    )


def _loss(batch, config, rows):
    """Returns the loss and its gradients by log-probabilities and entropies."""
    width = batch.tokens.shape[1]
    arrays = (np.float32(x[rows][:, :width]) for x in (LOGPROBS, ENTROPIES))
    return _value_and_gradients(config, *arrays, batch)


@functools.partial(jax.jit, static_argnames="config")
def _value_and_gradients(config, logprobs, entropies, batch):
    def loss(logprobs, entropies):
        scores = TokenScores(logprobs=logprobs, entropies=entropies)
        return policy_objective(config)(scores, batch)[0]

    return jax.value_and_grad(loss, argnums=(0, 1))(logprobs, entropies)


def _divisors(aggregation, learns=LEARNS):
    rows, lengths = learns.any(axis=1).sum(), np.maximum(learns.sum(axis=1), 1)
    return {
        "token_mean": learns.sum() * np.ones(B),
        "seq_mean_token_mean": rows * lengths,
        "seq_mean_token_sum": rows * np.ones(B),
        "seq_mean_token_sum_norm": rows * MAX_LENGTH * np.ones(B),
    }[aggregation]


def _reference(logprobs, aggregation, divisor=None):
    """Returns the sum of w (-c S + 0.3 KL - 0.2 H) over learning rows, in float64."""
    divisor = _divisors(aggregation) if divisor is None else divisor
    ratio, advantage = np.exp(logprobs - OLD), ADVANTAGES[:, None]
    gain = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
    d = REF - logprobs
    terms = -TOKEN_WEIGHTS * gain + 0.3 * (np.expm1(d) - d) - 0.2 * ENTROPIES
    return (LEARNS * terms / divisor[:, None]).sum()


@every_aggregation
def test_value_and_gradient_are_those_of_the_rows_that_ended(aggregation):
    config = _config(aggregation)
    value, (gradient, by_entropy) = _loss(
        _weigh(_batch(), config), config, np.arange(B)
    )
    assert value == pytest.approx(_reference(LOGPROBS, aggregation), rel=1e-5)
    slopes = np.zeros((B, T))
    for place in np.ndindex(B, T):
        step = np.zeros((B, T))
        step[place] = 1e-6
        up, down = (_reference(LOGPROBS + s, aggregation) for s in (step, -step))
        slopes[place] = (up - down) / 2e-6
    np.testing.assert_allclose(gradient, slopes, atol=2e-6)
    np.testing.assert_allclose(
        by_entropy, -0.2 * LEARNS / _divisors(aggregation)[:, None], rtol=1e-5
    )
    # Near misses: divisors that count the truncated rows, and no masking at all.
    counted = _reference(LOGPROBS, aggregation, _divisors(aggregation, MASK))
    assert value != pytest.approx(counted, rel=1e-2)
    unmasked, _ = _loss(_weigh(_batch(masks=False), config), config, np.arange(B))
    assert value != pytest.approx(float(unmasked), rel=1e-2)


@every_aggregation
def test_leaving_rows_out_is_deleting_them(aggregation):
    config = _config(aggregation)
    kept = np.flatnonzero(FINISHED)
    value, gradients = _loss(_weigh(_batch(), config), config, np.arange(B))
    fewer = _weigh(take_groups(_batch(masks=False), kept), config)
    alone, own_gradients = _loss(fewer, config, kept)
    assert value == pytest.approx(float(alone), rel=1e-6)
    for masked, deleted in zip(gradients, own_gradients, strict=True):
        np.testing.assert_allclose(np.asarray(masked)[kept], deleted, rtol=1e-6)
        assert not np.asarray(masked)[~FINISHED].any()


@every_aggregation
@pytest.mark.parametrize("packing", [False, True])
def test_every_cut_into_micro_batches_adds_up_to_the_same(aggregation, packing):
    config = _config(aggregation)
    whole = _weigh(_batch(), config)
    value, (gradient, _) = _loss(whole, config, np.arange(B))
    for size in (1, 2, 3):
        cut = MicroBatchCut(num_groups=size, pad_multiple=1, packing=packing)
        total, found = 0.0, np.zeros((B, T), np.float32)
        parts = split_micro_batches(whole, cut)
        for rows, part in zip(plan_micro_batches(whole, cut), parts, strict=True):
            assert part.left_out is None
            loss, (own, _) = _loss(part, config, rows)
            total += float(loss)
            found[rows, : own.shape[1]] = own
        assert total == pytest.approx(float(value), rel=1e-5)
        np.testing.assert_allclose(found, gradient, rtol=1e-5, atol=1e-8)


def test_no_program_meets_the_rows_that_are_left_out():
    """A scoring pass is the same program with and without them."""
    cut = MicroBatchCut(num_groups=2, pad_multiple=1)
    for part in split_micro_batches(_batch(), cut):
        assert part.left_out is None


@every_aggregation
def test_a_batch_of_truncated_completions_teaches_nothing(aggregation):
    config = _config(aggregation, top_entropy_quantile=0.5)
    batch = _batch(finished=np.zeros(B, bool))
    for chosen in (
        batch,
        choose_loss_tokens(batch, np.float32(ENTROPIES), fraction=0.5),
    ):
        weighed = _weigh(chosen, config)
        assert not weighed.loss_weights.any()
        value, gradients = _loss(weighed, config, np.arange(B))
        assert value == 0.0
        for gradient in gradients:
            np.testing.assert_array_equal(gradient, 0.0)


def test_forking_tokens_are_chosen_among_the_rows_that_learn():
    """Half of 10 tokens: the 5 with the highest entropy in rows that ended."""
    batch = choose_loss_tokens(_batch(), np.float32(ENTROPIES), fraction=0.5)
    least = np.sort(ENTROPIES[LEARNS])[5]
    np.testing.assert_array_equal(batch.loss_mask, LEARNS & (least <= ENTROPIES))


def test_a_group_keeps_the_advantages_that_its_truncated_members_gave_it():
    """As in DAPO and TRL: all rewards count; means and divisors use the others."""
    masked, plain = _batch(), _batch(masks=False)
    np.testing.assert_array_equal(masked.advantages, plain.advantages)
    np.testing.assert_array_equal(masked.lengths, plain.lengths)
    assert plain.left_out is None
    assert masked.left_out.tolist() == (~FINISHED).tolist()


def test_external_traces_are_never_left_out():
    traces = ExternalTraces(
        tokens=np.full((3, T), 7, np.int32),
        lengths=np.array([2, 0, 5], np.int32),
        advantages=np.ones(3, np.float32),
    )
    batch = batch_from_rollouts(
        _rollouts(prompts=3),
        ADVANTAGES.astype(np.float32).reshape(3, 2),
        external=traces,
        mask_truncated=True,
    )
    assert (
        batch.left_out.tolist()
        == [True, False, False, False, True, False] + [False] * 3
    )
    weighed = with_loss_weights(batch, aggregation="token_mean", max_length=T)
    learned = 1 + 3 + 2 + 4 + 2 + 5  # four completions and two traces
    assert weighed.loss_weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(
        weighed.loss_weights[weighed.loss_weights > 0], 1 / learned, rtol=1e-6
    )
