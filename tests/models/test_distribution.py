"""The distribution that tokens are drawn from, and the drawing."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.config import SamplingConfig
from rlvr_jax.models.distribution import (
    SamplingParams,
    invert_cumulative,
    is_eos,
    sampling_logits,
)

V = 11
EOS_IDS = (3, 7)
LOGITS = (2.0 * np.random.RandomState(0).standard_normal((6, V))).astype(np.float32)
INDEX = np.arange(6, dtype=np.int32)

_sampling_logits = jax.jit(
    sampling_logits, static_argnames=("eos_ids", "num_real_tokens")
)
_draw = jax.jit(invert_cumulative)


def _kept(logits, index=None, *, drawn=None, **settings) -> np.ndarray:
    """Returns `sampling_logits` of some rows, by default of token 0."""
    return np.asarray(
        _sampling_logits(
            jnp.asarray(logits, jnp.float32),
            jnp.zeros(len(logits), jnp.int32) if index is None else jnp.asarray(index),
            SamplingParams.from_config(SamplingConfig(**settings)),
            eos_ids=EOS_IDS,
            sampled_tokens=None if drawn is None else jnp.asarray(drawn, jnp.int32),
        )
    )


def _probs(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _hugging_faces(logits, index, *, temperature, top_k, top_p, min_new_tokens):
    """Returns probabilities after Hugging Face's processors, one row, in NumPy.

    Minimum length, temperature, then top-k, then top-p: tokens in ascending order go
    while their cumulative probability stays within 1 - p; the best one never goes.
    """
    scores = logits.astype(np.float64).copy()
    if index < min_new_tokens:
        scores[list(EOS_IDS)] = -np.inf
    scores /= temperature
    if top_k:
        scores[scores < np.sort(scores)[-top_k]] = -np.inf
    if top_p < 1:
        ascending = np.argsort(scores)
        gone = np.cumsum(_probs(scores)[ascending]) <= 1 - top_p
        gone[-1] = False
        scores[ascending[gone]] = -np.inf
    return _probs(scores)


@pytest.mark.parametrize(
    "settings",
    [
        dict(zip(("temperature", "top_k", "top_p", "min_new_tokens"), s, strict=True))
        for s in itertools.product((1.0, 0.7), (0, 5), (1.0, 0.9, 0.3), (0, 3))
    ],
    ids=str,
)
def test_hugging_faces_processors_agree(settings):
    probs = _probs(_kept(LOGITS, INDEX, **settings))
    for row, index in enumerate(INDEX):
        expected = _hugging_faces(LOGITS[row], index, **settings)
        np.testing.assert_allclose(probs[row], expected, rtol=0, atol=1e-6)
        assert ((probs[row] == 0) == (expected == 0)).all()


def test_by_hand_half_of_a_quarter_and_two_eighths():
    """1/2, 1/4, 1/8, 1/8: top-p 0.6 keeps two tokens, top-k 3 keeps four (a tie)."""
    logits = np.log([[0.125, 0.5, 0.125, 0.25]])
    np.testing.assert_allclose(
        _probs(_kept(logits, top_p=0.6)), [[0, 2 / 3, 0, 1 / 3]], atol=1e-6
    )
    assert (_kept(logits, top_k=3) > -1e29).sum() == 4
    assert (_kept(logits, top_k=2) > -1e29).sum() == 2
    # Of the two best, 2/3 and 1/3, the first alone reaches 0.6.
    assert (_kept(logits, top_k=2, top_p=0.6) > -1e29).sum() == 1


def test_greedy_keeps_the_first_of_the_best():
    kept = _kept([[1.0, 4.0, 2.0, 4.0]], temperature=0.0)
    np.testing.assert_array_equal(_probs(kept), [[0, 1, 0, 0]])


def test_settings_that_are_off_change_nothing():
    np.testing.assert_array_equal(_kept(LOGITS), LOGITS)
    # Even where the rest's probability is lost in rounding: 1 + exp(-40) == 1.
    peaked = np.zeros((1, V), np.float32)
    peaked[0, 2] = 40.0
    kept = _kept(peaked, top_k=V)
    np.testing.assert_array_equal(kept, peaked)


@pytest.mark.parametrize(
    "settings", [{"top_p": 0.3}, {"top_k": 1}, {"temperature": 0.0}]
)
def test_the_drawn_token_counts_as_kept(settings):
    """Whatever rounding did to the edge, its log-probability is a finite number."""
    worst = LOGITS.argmin(axis=1)
    rows = np.arange(len(LOGITS))
    without, kept = _kept(LOGITS, **settings), _kept(LOGITS, drawn=worst, **settings)
    assert (without[rows, worst] == -1e30).all()
    temperature = settings.get("temperature") or 1.0
    np.testing.assert_array_equal(kept[rows, worst], LOGITS[rows, worst] / temperature)
    without = without.copy()
    without[rows, worst] = kept[rows, worst]
    np.testing.assert_array_equal(kept, without)
    best = LOGITS.argmax(axis=1)
    np.testing.assert_array_equal(
        _kept(LOGITS, drawn=best, **settings), _kept(LOGITS, **settings)
    )


def test_a_barred_end_stays_barred_even_if_drawn():
    settings = {"min_new_tokens": 2, "top_k": 2}
    kept = _kept(LOGITS, INDEX, drawn=np.full(6, EOS_IDS[0]), **settings)
    assert (kept[:2, EOS_IDS[0]] == -1e30).all()
    assert (kept[2:, EOS_IDS[0]] > -1e30).all()


def test_gradients_flow_through_kept_tokens_alone():
    """The derivative of log p_i by logit j is ((i == j) - p_j) / T, 0 if j is cut."""
    settings = {"temperature": 0.5, "top_k": 4}
    kept = _probs(_kept(LOGITS[:1], **settings))[0]
    best = int(LOGITS[0].argmax())

    def logprob(logits):
        sampling = SamplingParams.from_config(SamplingConfig(**settings))
        kept = sampling_logits(logits, jnp.int32([0]), sampling, eos_ids=EOS_IDS)
        return jax.nn.log_softmax(kept)[0, best]

    gradient = jax.grad(logprob)(jnp.asarray(LOGITS[:1]))[0]
    expected = (np.eye(V)[best] - kept) / 0.5
    expected[kept == 0] = 0
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_draws_have_the_distributions_frequencies():
    """Chi-square, 10 degrees of freedom: once in a thousand times it exceeds 29.6."""
    count = 20_000
    uniform = jax.random.uniform(jax.random.key(0), (count,))
    probs = _probs(LOGITS[0])
    tokens, logprobs = _draw(jnp.broadcast_to(LOGITS[0], (count, V)), uniform)
    observed = np.bincount(tokens, minlength=V)
    chi_square = ((observed - count * probs) ** 2 / (count * probs)).sum()
    assert chi_square < 29.6
    np.testing.assert_allclose(logprobs, np.log(probs)[tokens], rtol=0, atol=1e-5)


def test_an_even_grid_of_numbers_draws_exact_shares():
    """Inversion is monotone: u in [0, 1/2) is the first token, and so on."""
    logits = jnp.log(jnp.float32([[0.5, 0.125, 0.25, 0.125]]))
    uniform = (jnp.arange(64, dtype=jnp.float32) + 0.5) / 64
    tokens, _ = _draw(jnp.broadcast_to(logits, (64, 4)), uniform)
    np.testing.assert_array_equal(tokens, np.repeat([0, 1, 2, 3], [32, 8, 16, 8]))


@pytest.mark.parametrize("size", [5, 1000, 4099])
def test_a_token_without_probability_is_never_drawn(size):
    """At the ends of [0, 1) and wherever the sum is flat.

    A target that is a cumulative sum itself is where an inversion that trusts sums to
    be monotone falls onto the flat part behind it.
    """
    random = np.random.RandomState(size)
    logits = np.where(random.rand(size) < 0.5, -1e30, random.standard_normal(size))
    logits[[0, 1, -2, -1]] = -1e30
    logits[2] = 0.0
    sums = jnp.cumsum(jnp.exp(jax.nn.log_softmax(jnp.float32(logits))))
    edges = np.float32(sums / sums[-1])
    below_one = np.nextafter(np.float32(1), np.float32(0))
    uniform = np.concatenate([[0.0, 1e-30, below_one], edges[edges < 1]])
    rows = jnp.broadcast_to(jnp.float32(logits), (len(uniform), size))
    tokens, logprobs = _draw(rows, jnp.float32(uniform))
    assert (logits[tokens] > -1e30).all()
    assert (logprobs > -100).all()
    assert tokens[0] == 2
    assert tokens[2] == np.flatnonzero(logits > -1e30)[-1]


def test_ends_are_the_ids_given():
    tokens = jnp.arange(V, dtype=jnp.int32)
    assert np.flatnonzero(is_eos(tokens, EOS_IDS)).tolist() == [3, 7]
    assert not is_eos(tokens, ()).any()


def test_rows_that_are_no_tokens_are_never_drawn():
    """The rest keep their odds: the same as without those rows at all."""
    sampling = SamplingParams.from_config(SamplingConfig(temperature=0.7, top_p=0.9))
    padded = jnp.asarray(np.pad(LOGITS, ((0, 0), (0, 3)), constant_values=9.0))
    kept = _sampling_logits(
        padded, jnp.asarray(INDEX), sampling, eos_ids=EOS_IDS, num_real_tokens=V
    )
    probs = _probs(np.asarray(kept))
    assert (probs[:, V:] == 0).all()
    alone = _probs(_kept(LOGITS, INDEX, temperature=0.7, top_p=0.9))
    np.testing.assert_allclose(probs[:, :V], alone, atol=1e-6)
