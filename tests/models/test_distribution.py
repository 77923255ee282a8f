"""The distribution that tokens are drawn from, and how they are drawn."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlvr_jax.config import SamplingConfig
from rlvr_jax.models.distribution import (
    SamplingParams,
    is_eos,
    sample_tokens,
    sampling_logits,
)

V = 11
EOS_IDS = (3, 7)
LOGITS = (2.0 * np.random.RandomState(0).standard_normal((6, V))).astype(np.float32)
INDEX = np.arange(6, dtype=np.int32)

_sampling_logits = jax.jit(
    sampling_logits, static_argnames=("eos_ids", "num_real_tokens")
)
_draw = jax.jit(sample_tokens)
EXCLUDED = np.float32(-1e30)


@jax.jit
def _draws_of_row(logits: jax.Array, keys: jax.Array):
    return jax.lax.map(
        lambda key: sample_tokens(logits[None], key[None]), keys, batch_size=2048
    )


def _draws(logits, count: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns `count` draws of one row of logits, and their log-probabilities."""
    keys = jax.random.split(jax.random.key(seed), count)
    tokens, logprobs = _draws_of_row(jnp.asarray(logits, jnp.float32), keys)
    return np.asarray(tokens)[:, 0], np.asarray(logprobs)[:, 0]


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
    """Returns the probabilities after Hugging Face's processors, for one row, in NumPy.

    The order is minimum length, temperature, top-k, top-p. Top-p removes tokens in
    ascending order while their cumulative probability is within 1 - p, but never the
    best.
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
    # With the best two at 2/3 and 1/3, the first alone reaches 0.6.
    assert (_kept(logits, top_k=2, top_p=0.6) > -1e29).sum() == 1


def test_greedy_keeps_the_first_of_the_best():
    kept = _kept([[1.0, 4.0, 2.0, 4.0]], temperature=0.0)
    np.testing.assert_array_equal(_probs(kept), [[0, 1, 0, 0]])


def test_settings_that_are_off_change_nothing():
    np.testing.assert_array_equal(_kept(LOGITS), LOGITS)
    # This holds even where rounding loses the rest's probability: 1 + exp(-40) == 1.
    peaked = np.zeros((1, V), np.float32)
    peaked[0, 2] = 40.0
    kept = _kept(peaked, top_k=V)
    np.testing.assert_array_equal(kept, peaked)


@pytest.mark.parametrize(
    "settings", [{"top_p": 0.3}, {"top_k": 1}, {"temperature": 0.0}]
)
def test_the_drawn_token_counts_as_kept(settings):
    """However the edge was rounded, the token's log-probability is finite."""
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
    """The derivative of log p_i by logit j is ((i == j) - p_j) / T; 0 if j is cut."""
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


def _inverted(logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Returns draws by the cumulative sum, the best that one float32 per row can do."""
    cumulative = np.asarray(jnp.cumsum(jax.nn.softmax(jnp.float32(logits))))
    return np.searchsorted(cumulative, uniform * cumulative[-1], side="right")


def _p_value(tokens: np.ndarray, probs: np.ndarray) -> float:
    """Returns the p-value of a chi-square test of draws against probabilities."""
    expected = len(tokens) * probs
    observed = np.bincount(tokens, minlength=len(probs))
    assert (observed[probs == 0] == 0).all()
    assert expected[probs > 0].min() > 5
    found = scipy.stats.chisquare(observed[probs > 0], expected[probs > 0])
    return float(found.pvalue)


def _row(kind: str, size: int) -> np.ndarray:
    """Returns logits over `size` tokens."""
    random = np.random.RandomState(size)
    logits = (0.7 * random.standard_normal(size)).astype(np.float32)
    if kind == "flat":
        return np.zeros(size, np.float32)
    if kind == "half_excluded":
        return np.where(random.rand(size) < 0.5, EXCLUDED, logits)
    if kind == "last_block":
        return np.where(np.arange(size) < size - 3, EXCLUDED, logits)
    return logits + {"normal": 0.0, "far_up": 4096.0}[kind]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("normal", 2),
        ("normal", 11),
        ("normal", 17),  # blocks of 4; the last has one token
        ("normal", 256),
        ("flat", 500),
        ("far_up", 61),
        ("half_excluded", 300),
        ("last_block", 515),
    ],
)
def test_draws_have_the_distributions_frequencies(kind, size):
    logits = _row(kind, size)
    probs = _probs(logits)
    tokens, logprobs = _draws(logits, 40_000)
    assert _p_value(tokens, probs) > 1e-3
    np.testing.assert_allclose(logprobs, np.log(probs[tokens]), rtol=0, atol=1e-5)


def test_the_frequencies_would_show_a_fifth_of_a_logit():
    """The test above has enough power: here one token of 11 is a fifth too frequent."""
    tokens, _ = _draws(_row("normal", 11) + 0.2 * np.eye(11)[4], 40_000)
    assert _p_value(tokens, _probs(_row("normal", 11))) < 1e-6


V_LARGE = 151_936


def _long_tail(first: bool) -> np.ndarray:
    """Returns logits of Qwen's vocabulary: 64 tokens share all but 2e-3 of it.

    The other tokens share the 2e-3: each has a probability of 1.3e-8, a ninth of 2^-23.
    """
    head = np.full(64, (1 - 2e-3) / 64)
    tail = np.full(V_LARGE - 64, 2e-3 / (V_LARGE - 64))
    return np.log(np.concatenate([tail, head] if first else [head, tail]))


@pytest.mark.parametrize("first", [False, True], ids=["head_first", "tail_first"])
def test_the_tail_of_a_large_vocabulary_is_drawn_at_its_rate(first):
    """Most tokens of the tail fall between two values that a float32 sum can take.

    Inversion never draws them with any of the 2^23 random numbers; all are tried here.
    """
    logits = _long_tail(first)
    probs = _probs(logits)
    uniform = np.arange(2**23, dtype=np.float32) / np.float32(2**23)
    reached = np.zeros(V_LARGE, bool)
    reached[np.minimum(_inverted(logits, uniform), V_LARGE - 1)] = True
    assert (~reached).mean() > 0.8
    count = 30_000
    tokens, logprobs = _draws(logits, count)
    expected = count * probs[~reached].sum()
    assert expected > 40
    found = (~reached)[tokens].sum()
    assert abs(found - expected) < 4 * expected**0.5
    np.testing.assert_allclose(logprobs, np.log(probs[tokens]), rtol=0, atol=1e-4)
    in_tail = tokens[probs[tokens] < 2**-23]
    assert len(np.unique(in_tail)) == len(in_tail)
    halves = np.bincount(in_tail > V_LARGE // 2, minlength=2)
    assert abs(halves[0] - halves[1]) < 4 * len(in_tail) ** 0.5


@pytest.mark.parametrize(
    ("head", "rare", "seeds"),
    [
        (256, slice(0, 256, 16), {4068156: 176, 4535011: 16, 4794107: 64}),
        (0, slice(1, 16), {4780117: 13, 4822408: 2, 11001118: 2}),
    ],
    ids=["blocks", "within_a_block"],
)
def test_a_token_of_probability_2_to_the_minus_26_is_drawn(head, rare, seeds):
    """These seeds were found among millions: each draws one of the rare tokens.

    Gumbel numbers from 23 bits are too coarse: with them these tokens never win.
    """
    logits = np.full(head + 1 if head else 256, EXCLUDED)
    logits[rare], logits[head] = -26 * np.log(2), 0.0
    rows = jnp.broadcast_to(jnp.asarray(logits), (len(seeds), len(logits)))
    tokens, logprobs = _draw(rows, jax.vmap(jax.random.key)(jnp.int32(list(seeds))))
    np.testing.assert_array_equal(tokens, list(seeds.values()))
    np.testing.assert_allclose(logprobs, -26 * np.log(2), rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000, 4099])
def test_a_token_alone_is_always_drawn(size):
    """It may be at a block's edge or in the last, partial block; its logprob is 0."""
    width = 1 << ((size - 1).bit_length() // 2)
    edges = {0, 1, width - 1, width, size // width * width - 1, size - 2, size - 1}
    alone = sorted(edge for edge in edges if 0 <= edge < size)
    logits = np.full((len(alone), size), EXCLUDED)
    logits[np.arange(len(alone)), alone] = -3.0
    for seed in range(8):
        keys = jax.random.split(jax.random.key(seed), len(alone))
        tokens, logprobs = _draw(jnp.asarray(logits), keys)
        np.testing.assert_array_equal(tokens, alone)
        np.testing.assert_array_equal(logprobs, 0.0)


def test_what_underflows_is_not_drawn_and_makes_no_nan():
    """Next to a logit of 0, blocks of -200 have a sum of 0 in float32."""
    logits = np.full(300, -200.0)
    logits[137] = 0.0
    tokens, logprobs = _draws(logits, 4096)
    assert (tokens == 137).all()
    np.testing.assert_array_equal(logprobs, 0.0)


def test_a_row_is_drawn_by_its_own_key():
    """A draw depends only on its own key: not on the order, not on other rows."""
    keys = jax.random.split(jax.random.key(3), 6)
    tokens, logprobs = _draw(jnp.asarray(LOGITS), keys)
    for row in range(6):
        alone = _draw(jnp.asarray(LOGITS[row : row + 1]), keys[row : row + 1])
        assert (alone[0][0], alone[1][0]) == (tokens[row], logprobs[row])
    many, _ = _draw(jnp.broadcast_to(LOGITS[0], (6, V)), keys)
    assert len(np.unique(many)) > 1


def test_ends_are_the_ids_given():
    tokens = jnp.arange(V, dtype=jnp.int32)
    assert np.flatnonzero(is_eos(tokens, EOS_IDS)).tolist() == [3, 7]
    assert not is_eos(tokens, ()).any()


def test_rows_without_a_token_are_never_drawn():
    """The other tokens keep the odds that they have without those rows."""
    sampling = SamplingParams.from_config(SamplingConfig(temperature=0.7, top_p=0.9))
    padded = jnp.asarray(np.pad(LOGITS, ((0, 0), (0, 3)), constant_values=9.0))
    kept = _sampling_logits(
        padded, jnp.asarray(INDEX), sampling, eos_ids=EOS_IDS, num_real_tokens=V
    )
    probs = _probs(np.asarray(kept))
    assert (probs[:, V:] == 0).all()
    alone = _probs(_kept(LOGITS, INDEX, temperature=0.7, top_p=0.9))
    np.testing.assert_allclose(probs[:, :V], alone, atol=1e-6)
