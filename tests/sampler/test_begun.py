"""Rows that continue from given tokens draw the same as without the interruption."""

import jax
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.sampler import pad_prompts, sample
from rlvr_jax.types import BegunRows
from tests.support.policies import random_tokens, tiny_policy

T, G, CUT = 12, 3, 5
PROMPTS = [random_tokens(1, n, seed=n)[0].tolist() for n in (8, 3, 1, 5)]
UIDS = [7, 2**32 - 1, 0, 11]
POLICY = tiny_policy(eos_ids=(1, 2))


def _sample(prompts, num_samples, width, min_new_tokens=0, slots=0):
    sampling = SamplingParams(
        temperature=np.float32(0.8),
        top_p=np.float32(1.0),
        top_k=np.int32(0),
        min_new_tokens=np.int32(min_new_tokens),
    )
    return jax.device_get(
        sample(
            *nnx.split(POLICY),
            prompts,
            sampling,
            key=jax.random.key(3),
            weight_version=np.int32(0),
            num_samples=num_samples,
            max_new_tokens=width,
            num_slots=slots,
        )
    )


def _begun(whole, rows, cut):
    contexts = [[*PROMPTS[b // G], *whole.tokens[b, :cut].tolist()] for b in rows]
    prompts = pad_prompts(contexts, uids=[UIDS[b // G] for b in rows], pad_multiple=16)
    begun = BegunRows(
        sample=np.array([b % G for b in rows], np.uint32),
        length=np.full(len(rows), cut, np.int32),
    )
    return prompts.__class__(**(vars(prompts) | {"begun": begun}))


@pytest.mark.parametrize("slots", [0, 2])
@pytest.mark.parametrize("min_new_tokens", [0, CUT + 3])
def test_a_row_cut_in_two_is_the_row(min_new_tokens, slots):
    """Other rows do not matter, and `min_new_tokens` counts from the row's start."""
    prompts = pad_prompts(PROMPTS, uids=UIDS, pad_multiple=16)
    whole = _sample(prompts, G, T, min_new_tokens)
    rows = [b for b in range(len(PROMPTS) * G) if whole.lengths[b] > CUT][::-1]
    rows = rows[: len(rows) // 2 * 2]
    assert len(rows) >= 4
    assert {b % G for b in rows} == set(range(G))
    rest = _sample(_begun(whole, rows, CUT), 1, T - CUT, min_new_tokens, slots)
    for at, b in enumerate(rows):
        assert rest.lengths[at] == whole.lengths[b] - CUT
        assert rest.finished[at] == whole.finished[b]
        np.testing.assert_array_equal(rest.tokens[at], whole.tokens[b, CUT:])
        np.testing.assert_allclose(
            rest.logprobs[at], whole.logprobs[b, CUT:], atol=1e-5
        )
    if min_new_tokens:
        assert whole.lengths.min() > min_new_tokens
    else:
        assert whole.lengths.min() <= CUT + 3
