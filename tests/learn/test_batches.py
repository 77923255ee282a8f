"""Batches: whole groups, no token lost, weights computed before the cut."""

import dataclasses
from typing import get_args

import jax
import numpy as np
import pytest

from rlvr_jax.algorithms.objective import Aggregation
from rlvr_jax.learn.batches import (
    batch_from_rollouts,
    batch_from_solutions,
    choose_loss_tokens,
    score_loss_tokens,
    split_minibatches,
    take_groups,
    trim_padding,
    with_loss_weights,
)
from rlvr_jax.learn.micro_batches import MicroBatchCut, split_micro_batches
from rlvr_jax.types import Batch, Prompts, Rollouts

P, G, S, T = 4, 2, 3, 10
# Longest completion of each group: 9, 2, 4, 10.
LENGTHS = np.array([9, 1, 2, 2, 3, 4, 10, 5], np.int32)
MASK = np.arange(T) < LENGTHS[:, None]


def _batch() -> Batch:
    """Returns a batch in which every number encodes its row, and column if any."""
    rows_B, columns_T = np.arange(P * G), np.arange(T)
    labels_BT = np.where(MASK, 100 * rows_B[:, None] + columns_T, 0)
    prompts = Prompts(
        tokens=np.repeat(np.arange(P, dtype=np.int32)[:, None], S, axis=1),
        lengths=np.array([3, 1, 2, 3], np.int32),
        uid=np.arange(P, dtype=np.uint32),
    )
    rollouts = Rollouts(
        prompts=prompts,
        tokens=labels_BT.astype(np.int32),
        lengths=LENGTHS,
        logprobs=-labels_BT.astype(np.float32),
        finished=np.ones(P * G, bool),
        weight_version=np.int32(0),
    )
    return batch_from_rollouts(rollouts, rows_B.astype(np.float32))


def _cut(count: int, pad_multiple: int = 1) -> MicroBatchCut:
    """Returns the cut of a batch into so many micro-batches."""
    return MicroBatchCut(num_groups=P // count, pad_multiple=pad_multiple)


def _tokens(batch: Batch) -> set[int]:
    mask = np.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    return set(batch.tokens[mask].tolist())


def _aligned(batch: Batch) -> bool:
    """Returns whether every record of each row belongs to that row."""
    rows_B = batch.advantages.astype(int)
    mask = np.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    return (
        (batch.lengths == LENGTHS[rows_B]).all()
        and (np.repeat(batch.prompt_tokens[:, 0], G) == rows_B // G).all()
        and (batch.tokens // 100 == np.where(mask, rows_B[:, None], 0)).all()
        and (batch.old_logprobs == -batch.tokens).all()
    )


def test_minibatches_are_whole_groups_in_order():
    parts = list(split_minibatches(_batch(), 2))
    assert [part.advantages.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all(map(_aligned, parts))


@pytest.mark.parametrize(
    ("count", "bucket", "widths"),
    [
        (1, 4, [10]),  # 12 is the next multiple, but there are 10 columns
        (2, 4, [4, 10]),
        (2, 1, [4, 10]),
        (4, 1, [2, 4, 9, 10]),
        (4, 4, [4, 4, 10, 10]),
        (4, 5, [5, 5, 10, 10]),
    ],
)
def test_micro_batches_are_as_wide_as_their_longest_completion(count, bucket, widths):
    batch = _batch()
    parts = list(split_micro_batches(batch, _cut(count, bucket)))
    assert [part.tokens.shape for part in parts] == [
        (P * G // count, w) for w in widths
    ]
    assert all(map(_aligned, parts))
    assert sum(len(_tokens(part)) for part in parts) == LENGTHS.sum()
    assert set.union(*map(_tokens, parts)) == _tokens(batch)


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_token_weights_survive_every_cut(aggregation):
    """A token's weight depends on the minibatch, not on the micro-batch."""
    whole = with_loss_weights(_batch(), aggregation=aggregation, max_length=T)
    expected = {
        "token_mean": 1 / LENGTHS.sum(),
        "seq_mean_token_mean": 1 / (P * G * LENGTHS[:, None]),
        "seq_mean_token_sum": 1 / (P * G),
        "seq_mean_token_sum_norm": 1 / (P * G * T),
    }[aggregation]
    np.testing.assert_allclose(whole.loss_weights, expected * MASK, rtol=1e-6)
    for part in split_micro_batches(whole, _cut(4)):
        rows = part.advantages.astype(int)
        width = part.tokens.shape[1]
        np.testing.assert_array_equal(
            part.loss_weights, whole.loss_weights[rows, :width]
        )


# Entropies with few values, so many tie; padding would show if it were read.
ENTROPIES = np.where(
    MASK,
    np.random.RandomState(0).randint(0, 12, MASK.shape).astype(np.float32) / 4,
    np.float32(np.nan),
)


def _kept_by_hand(share: float) -> np.ndarray:
    """Returns the tokens exceeded by fewer than round(share n) others, one by one."""
    true = [float(h) for h in ENTROPIES[MASK]]
    room = max(1, round(share * len(true)))
    kept = np.zeros_like(MASK)
    for row, column in zip(*np.nonzero(MASK), strict=True):
        kept[row, column] = sum(h > ENTROPIES[row, column] for h in true) < room
    return kept


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99, 1.0])
def test_the_tokens_of_most_entropy_are_kept_and_ties_share_their_fate(share):
    kept = choose_loss_tokens(_batch(), ENTROPIES, fraction=share).loss_mask
    np.testing.assert_array_equal(kept, _kept_by_hand(share))
    assert kept.sum() >= round(share * MASK.sum())
    if share == 1.0:
        np.testing.assert_array_equal(kept, MASK)
    if share == 0.01:  # less than one token: one, and its ties
        np.testing.assert_array_equal(kept, np.nanmax(ENTROPIES) == ENTROPIES)


def test_no_order_cut_or_padding_changes_the_kept_tokens():
    batch = choose_loss_tokens(_batch(), ENTROPIES, fraction=0.3)
    order = np.array([2, 0, 3, 1])
    rows = (order[:, None] * G + np.arange(G)).reshape(-1)
    wide = np.pad(ENTROPIES, ((0, 0), (0, 3)), constant_values=np.inf)
    padded = dataclasses.replace(
        _batch(),
        **{
            name: np.pad(vars(_batch())[name], ((0, 0), (0, 3)))
            for name in ("tokens", "loss_weights", "old_logprobs", "ref_logprobs")
        },
    )
    turned = choose_loss_tokens(take_groups(padded, order), wide[rows], fraction=0.3)
    np.testing.assert_array_equal(turned.loss_mask[:, :T], batch.loss_mask[rows])
    assert not turned.loss_mask[:, T:].any()
    for part in split_micro_batches(batch, _cut(4)):
        at = part.advantages.astype(int)
        np.testing.assert_array_equal(
            part.loss_mask, batch.loss_mask[at, : part.tokens.shape[1]]
        )


def test_random_scores_are_uniform_and_not_moved_by_padding():
    def draw(mask_BT):
        return score_loss_tokens(
            "random",
            np.full(mask_BT.shape, np.nan),
            mask_BT,
            rng=np.random.default_rng(3),
        )

    wide = np.pad(MASK, ((0, 0), (0, 5)))
    np.testing.assert_array_equal(draw(wide)[:, :T], draw(MASK))
    scores = draw(np.ones((100, 100), bool))
    shares = np.histogram(scores, bins=10, range=(0, 1))[0] / scores.size
    np.testing.assert_allclose(shares, 0.1, atol=0.015)


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_dropped_tokens_weigh_nothing_and_means_are_over_the_rest(aggregation):
    batch = choose_loss_tokens(_batch(), ENTROPIES, fraction=0.3)
    kept = batch.loss_mask.copy()
    kept[1] = False  # a completion without kept tokens
    batch = dataclasses.replace(batch, loss_mask=kept)
    whole = with_loss_weights(batch, aggregation=aggregation, max_length=T)
    assert whole.loss_mask is None
    counts = kept.sum(axis=1, keepdims=True)
    expected = {
        "token_mean": 1 / kept.sum(),
        "seq_mean_token_mean": 1 / ((counts > 0).sum() * np.maximum(counts, 1)),
        "seq_mean_token_sum": 1 / (P * G),
        "seq_mean_token_sum_norm": 1 / (P * G * T),
    }[aggregation]
    np.testing.assert_allclose(whole.loss_weights, expected * kept, rtol=1e-6)
    for part in split_micro_batches(whole, _cut(4)):
        at = part.advantages.astype(int)
        np.testing.assert_array_equal(
            part.loss_weights, whole.loss_weights[at, : part.tokens.shape[1]]
        )


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_groups_of_zero_variance_can_weigh_nothing_and_count_nowhere(aggregation):
    """All advantages of the second group are 0; some of the third group are."""
    advantages = np.where(np.arange(P * G) // G == 1, 0.0, 1.0).astype(np.float32)
    advantages[2 * G] = 0.0
    batch = dataclasses.replace(_batch(), advantages=advantages)
    weights = with_loss_weights(
        batch, aggregation=aggregation, max_length=T, exclude_zero_variance=True
    ).loss_weights
    others = np.array([0, 2, 3])
    expected = with_loss_weights(
        take_groups(batch, others), aggregation=aggregation, max_length=T
    ).loss_weights
    rows = (others[:, None] * G + np.arange(G)).reshape(-1)
    np.testing.assert_array_equal(weights[rows], expected)
    assert not weights[G : 2 * G].any()
    silent = dataclasses.replace(batch, advantages=np.zeros_like(advantages))
    assert not with_loss_weights(
        silent, aggregation=aggregation, max_length=T, exclude_zero_variance=True
    ).loss_weights.any()


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_a_minibatch_that_keeps_nothing_has_no_weight(aggregation):
    batch = dataclasses.replace(_batch(), loss_mask=np.zeros_like(MASK))
    assert not with_loss_weights(
        batch, aggregation=aggregation, max_length=T
    ).loss_weights.any()


def test_groups_can_be_taken_in_any_order():
    taken = take_groups(_batch(), np.array([3, 1]))
    assert taken.advantages.tolist() == [6, 7, 2, 3]
    assert taken.prompt_lengths.tolist() == [3, 1]
    assert _aligned(taken)


def test_trimming_cuts_only_completions():
    cut = trim_padding(_batch(), 4)
    assert {array.shape for array in jax.tree.leaves(cut) if array.ndim == 2} == {
        (P, S),
        (P * G, 4),
    }


def test_a_worked_solution_is_a_completion_that_nothing_is_compared_with():
    prompts = Prompts(
        tokens=np.ones((2, S), np.int32),
        lengths=np.array([1, 3], np.int32),
        uid=np.arange(2, dtype=np.uint32),
    )
    tokens = np.array([[5, 1, 0], [6, 7, 1]], np.int32)
    batch = batch_from_solutions(prompts, tokens, np.array([2, 3], np.int32))
    batch = with_loss_weights(batch, aggregation="token_mean", max_length=1)
    np.testing.assert_array_equal(batch.tokens, tokens)
    np.testing.assert_allclose(batch.loss_weights, 0.2 * (tokens > 0), rtol=1e-6)
    for unread in (batch.advantages, batch.old_logprobs, batch.ref_logprobs):
        assert not unread.any()
