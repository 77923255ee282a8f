"""The scorer: compared with whole sequences, in chunks, with bounded memory."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.config import SamplingConfig
from rlvr_jax.learn.logprobs import token_scores
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.types import Batch
from tests.support.policies import TINY, named, random_tokens, tiny_policy

P, G, S, T = 2, 3, 5, 7
PROMPT_LENGTHS = np.array([5, 2], np.int32)
LENGTHS = np.array([7, 1, 4, 6, 7, 2], np.int32)
MASK = np.arange(T) < LENGTHS[:, None]
PROMPTS = np.where(
    np.arange(S) < PROMPT_LENGTHS[:, None], random_tokens(P, S, seed=1), 0
)
COMPLETIONS = np.where(MASK, random_tokens(P * G, T, seed=2), 0)
# Arbitrary weights of each logprob and entropy in one number, 0 in padding.
SHARES = np.random.RandomState(3).standard_normal((2, P * G, T)) * MASK


def _batch() -> Batch:
    zeros = np.zeros((P * G, T), np.float32)
    return Batch(
        prompt_tokens=PROMPTS,
        prompt_lengths=PROMPT_LENGTHS,
        tokens=COMPLETIONS,
        lengths=LENGTHS,
        loss_weights=zeros,
        advantages=zeros[:, 0],
        old_logprobs=zeros,
        ref_logprobs=zeros,
        bands=np.zeros(P * G, np.int32),
    )


def _share(logprobs_BT, entropies_BT):
    logprob_shares, entropy_shares = jnp.asarray(SHARES, jnp.float32)
    return (logprob_shares * logprobs_BT + entropy_shares * entropies_BT).sum()


def _value_and_gradient(function, **changes):
    """Returns `_share` of the (logprobs, entropies) of a policy, and its gradient."""
    graphdef, params = nnx.split(tiny_policy(num_layers=1, **changes))

    def value(params):
        return _share(*function(nnx.merge(graphdef, params)))

    found, gradient = jax.jit(jax.value_and_grad(value))(params)
    return float(found), named(gradient)


@functools.cache
def _expected():
    """Returns the result for prompt and completion in one row, all logits at once."""
    joined = np.zeros((P * G, S + T), np.int32)
    starts = PROMPT_LENGTHS.repeat(G)
    for row, start in enumerate(starts):
        joined[row, :start] = PROMPTS[row // G, :start]
        joined[row, start : start + T] = COMPLETIONS[row]
    mask = np.arange(S + T) < (starts + LENGTHS)[:, None]
    before = starts[:, None] - 1 + np.arange(T)

    def scores(policy):
        logits_BSV = policy(joined, mask)
        logprobs_BTV = jax.nn.log_softmax(logits_BSV)[np.arange(P * G)[:, None], before]
        chosen = jnp.take_along_axis(logprobs_BTV, COMPLETIONS[..., None], axis=-1)
        return chosen[..., 0], -(jnp.exp(logprobs_BTV) * logprobs_BTV).sum(axis=-1)

    return _value_and_gradient(scores)


@pytest.mark.parametrize(("chunk", "scan_layers"), [(0, False), (1, False), (3, True)])
def test_shared_prompts_and_chunks_are_whole_sequences_at_once(chunk, scan_layers):
    """Value and gradient; a chunk of 3 leaves one of 7 positions for the last."""

    def scores(policy):
        found = token_scores(
            policy, _batch(), SamplingParams.unmodified(), logits_chunk_size=chunk
        )
        return found.logprobs, found.entropies

    value, gradient = _expected()
    found, found_gradient = _value_and_gradient(scores, scan_layers=scan_layers)
    assert found == pytest.approx(value, rel=1e-5)
    for name, expected in gradient.items():
        scale = np.abs(expected).max()
        assert scale > 0, name
        np.testing.assert_allclose(
            found_gradient[name], expected, rtol=0, atol=1e-5 * scale, err_msg=name
        )


@functools.cache
def _logprobs(**settings) -> np.ndarray:
    return np.asarray(
        _compiled_scores(SamplingParams.from_config(SamplingConfig(**settings)))
    )


@jax.jit
def _compiled_scores(sampling):
    policy = tiny_policy(num_layers=1, eos_ids=tuple(range(2, 12)))
    return token_scores(policy, _batch(), sampling, logits_chunk_size=3).logprobs


def test_a_drawn_token_beyond_the_truncation_has_a_finite_logprob():
    """Truncation leaves one token; another drawn token then shares with it.

    Its log-probability comes from a choice between the two.
    """
    alone = _logprobs(top_k=1)[MASK]
    assert (alone > -20).all()
    assert (alone >= _logprobs()[MASK]).all()
    assert (alone < 0).any()


def test_the_distribution_is_conditioned_on_the_position_in_the_completion():
    """End-of-sequence is barred before token 3, so others get its share."""
    plain, barred = _logprobs(), _logprobs(min_new_tokens=3)
    others = MASK & (COMPLETIONS >= 12)
    early = np.broadcast_to(np.arange(T) < 3, MASK.shape)
    assert (barred > plain + 1e-3)[others & early].all()
    np.testing.assert_array_equal(barred[~early], plain[~early])


@pytest.mark.parametrize(
    ("chunk", "T", "positions"), [(4, 64, 4), (0, 64, 16), (0, 40, 14), (64, 64, 64)]
)
def test_no_more_logits_exist_at_once_than_requested(chunk, T, positions):
    """In the program of value and gradient; by itself it holds 2^23 on a CPU.

    That is 16 positions here. 40 make three chunks of 14, with two of padding.
    """
    B, V = 16, 2**15
    config = dataclasses.replace(TINY, num_layers=1)
    graphdef, params = nnx.split(
        nnx.eval_shape(lambda: Transformer(config, V, nnx.Rngs(0)))
    )

    def loss(params, batch):
        policy = nnx.merge(graphdef, params)
        scores = token_scores(
            policy, batch, SamplingParams.unmodified(), logits_chunk_size=chunk
        )
        return scores.logprobs.sum() + scores.entropies.sum()

    def shape(*sizes, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(sizes, dtype)

    batch = Batch(
        prompt_tokens=shape(B, S, dtype=jnp.int32),
        prompt_lengths=shape(B, dtype=jnp.int32),
        tokens=shape(B, T, dtype=jnp.int32),
        lengths=shape(B, dtype=jnp.int32),
        loss_weights=shape(B, T),
        advantages=shape(B),
        old_logprobs=shape(B, T),
        ref_logprobs=shape(B, T),
        bands=shape(B, dtype=jnp.int32),
    )
    program = jax.jit(jax.value_and_grad(loss)).lower(params, batch).as_text()
    sizes = [
        math.prod(map(int, lead.split("x")))
        for lead in re.findall(rf"tensor<((?:\d+x)*\d+)x{V}xf32>", program)
    ]
    assert max(sizes) == B * positions
