"""Where learning happens: sums equal a float64 loop for any padding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rlvr_jax.algorithms.token_stats import token_stats, zero_token_stats
from rlvr_jax.config import LossConfig
from rlvr_jax.learn.batches import with_loss_weights
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.micro_batches import MicroBatchCut, split_micro_batches
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.types import BANDS, NUM_DECILES, TOKEN_CLASSES, TOKEN_STATS, Batch

P, G, S, T, V = 4, 2, 3, 12, 9
LENGTHS = np.array([12, 1, 3, 10, 7, 0, 11, 5], np.int32)
MASK = np.arange(T) < LENGTHS[:, None]
RANDOM = np.random.RandomState(0)
CLASSES = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0], np.int8)
LOGPROBS = -RANDOM.exponential(size=(P * G, T)).astype(np.float32)
ENTROPIES = RANDOM.exponential(size=(P * G, T)).astype(np.float32)


def _batch() -> Batch:
    batch = Batch(
        prompt_tokens=np.ones((P, S), np.int32),
        prompt_lengths=np.full(P, S, np.int32),
        tokens=RANDOM.randint(0, V, (P * G, T)).astype(np.int32),
        lengths=LENGTHS,
        loss_weights=np.zeros((P * G, T), np.float32),
        advantages=np.float32([1.5, -0.8, 0.0, 0.6, -1.2, 0.9, 2.0, -0.3]),
        old_logprobs=LOGPROBS + np.float32(0.1) * RANDOM.randn(P * G, T).astype("f4"),
        ref_logprobs=np.zeros((P * G, T), np.float32),
        # The last group has none.
        bands=np.int32([0, 0, 2, 2, 3, 3, -1, -1]),
    )
    return with_loss_weights(batch, aggregation="seq_mean_token_mean", max_length=T)


BATCH = _batch()


def _by_hand(batch: Batch) -> np.ndarray:
    """Returns the sums, one token at a time in float64."""
    sums = np.zeros(
        (len(BANDS) + 1, NUM_DECILES + len(TOKEN_CLASSES), len(TOKEN_STATS))
    )
    for row, column in zip(*np.nonzero(MASK), strict=True):
        band = batch.bands[row] if batch.bands[row] >= 0 else len(BANDS)
        logprob = float(LOGPROBS[row, column])
        weight = float(batch.loss_weights[row, column])
        mass = abs(weight * float(batch.advantages[row]))
        measures = {
            "tokens": 1.0,
            "entropy": float(ENTROPIES[row, column]),
            "advantage_mass": mass,
            "logit_grad_proxy": mass * (1 - np.exp(logprob)),
            "abs_log_ratio": abs(logprob - float(batch.old_logprobs[row, column])),
        }
        place = int(np.floor(column / LENGTHS[row] * 10 + 1e-9))
        kind = NUM_DECILES + CLASSES[batch.tokens[row, column]]
        for cell in (place, kind):
            sums[band, cell] += [measures[name] for name in TOKEN_STATS]
    return sums


def _sums(batch: Batch, *, logprobs=LOGPROBS, entropies=ENTROPIES) -> np.ndarray:
    """Returns the sums of the program."""
    summed = jax.jit(token_stats)(logprobs, entropies, batch, token_classes=CLASSES)
    return jax.device_get(summed)


def test_sums_are_those_of_a_loop_over_tokens():
    found = _sums(BATCH)
    np.testing.assert_allclose(found, _by_hand(BATCH), rtol=1e-5, atol=1e-7)
    assert (
        found[:, :NUM_DECILES, 0].sum() == found[:, NUM_DECILES:, 0].sum() == MASK.sum()
    )


def test_a_tokens_factor_multiplies_its_mass_and_gradient_alone():
    factors = np.linspace(0.5, 2.0, MASK.size, dtype=np.float32).reshape(MASK.shape)
    factors = np.where(MASK, factors, np.float32(np.nan))
    found = _sums(dataclasses.replace(BATCH, token_weights=factors))
    scaled = dataclasses.replace(BATCH, loss_weights=BATCH.loss_weights * factors)
    np.testing.assert_allclose(found, _by_hand(scaled), rtol=1e-5, atol=1e-7)


def test_the_objective_counts_the_factors_of_its_loss():
    factors = np.where(MASK, np.float32(3.0), 0)
    weighted = dataclasses.replace(BATCH, token_weights=factors)
    scores = TokenScores(logprobs=LOGPROBS, entropies=jnp.asarray(ENTROPIES))
    _, aux = policy_objective(LossConfig(), CLASSES)(scores, weighted)
    mass = TOKEN_STATS.index("advantage_mass")
    np.testing.assert_allclose(
        aux.token_stats[..., mass], 3 * _sums(BATCH)[..., mass], rtol=1e-5, atol=1e-7
    )


def test_without_classes_tokens_are_split_only_by_position():
    found = jax.device_get(token_stats(LOGPROBS, ENTROPIES, BATCH, token_classes=None))
    np.testing.assert_array_equal(found[:, :NUM_DECILES], _sums(BATCH)[:, :NUM_DECILES])
    assert not found[:, NUM_DECILES:].any()


def test_padding_is_never_read():
    """Its numbers and ids have no effect; ids may be outside the vocabulary."""
    nan = np.float32(np.nan)
    poisoned = dataclasses.replace(
        BATCH,
        tokens=np.where(MASK, BATCH.tokens, 10**6).astype(np.int32),
        loss_weights=np.where(MASK, BATCH.loss_weights, nan),
        old_logprobs=np.where(MASK, BATCH.old_logprobs, np.float32(np.inf)),
    )
    found = _sums(
        poisoned,
        logprobs=np.where(MASK, LOGPROBS, nan),
        entropies=np.where(MASK, ENTROPIES, nan),
    )
    np.testing.assert_array_equal(found, _sums(BATCH))


def test_sums_add_up_over_micro_batches():
    """Cut by length and trimmed; advantages identify a row in the whole."""
    rows_of = {float(a): i for i, a in enumerate(BATCH.advantages)}
    total = jax.device_get(zero_token_stats())
    for part in split_micro_batches(BATCH, MicroBatchCut(num_groups=1, pad_multiple=1)):
        rows = [rows_of[float(a)] for a in part.advantages]
        width = part.tokens.shape[1]
        total = total + _sums(
            part,
            logprobs=LOGPROBS[rows, :width],
            entropies=ENTROPIES[rows, :width],
        )
    np.testing.assert_allclose(total, _sums(BATCH), rtol=1e-5, atol=1e-7)


def test_the_policy_objective_reports_them_and_no_gradient_comes_of_them():
    objective = policy_objective(LossConfig(), CLASSES)

    def reported(logprobs):
        scores = TokenScores(logprobs=logprobs, entropies=jnp.asarray(ENTROPIES))
        return objective(scores, jax.tree.map(jnp.asarray, BATCH))[1].token_stats

    value, backward = jax.vjp(reported, jnp.asarray(LOGPROBS))
    np.testing.assert_array_equal(value, _sums(BATCH))
    assert not backward(jnp.ones_like(value))[0].any()
