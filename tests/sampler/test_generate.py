"""Rollouts: their dependencies, their log-probabilities, and how they end."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from job_jax.schema import ConfigError
from rlvr_jax.config import SamplingConfig
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.logprobs import token_scores
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.sampler import generate, pad_prompts, sample
from rlvr_jax.sampler.generate import row_keys, token_keys
from rlvr_jax.types import Rollouts
from tests.support.policies import EOS, VOCAB_SIZE, forward, random_tokens, tiny_policy

T, G = 12, 4
PROMPTS = [random_tokens(1, n, seed=n)[0].tolist() for n in (8, 3, 1, 5)]
UIDS = [7, 2**32 - 1, 0, 11]
SETTINGS = {
    "plain": {},
    "cold": {"temperature": 0.7},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 5},
    "min_length": {"min_new_tokens": 3},
    "all": {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_new_tokens": 3},
}
POLICY = tiny_policy()


def _rollouts(policy=POLICY, prompts=PROMPTS, uids=UIDS, *, bucket=16, **changed):
    """Returns rollouts in NumPy."""
    settings = {"max_new_tokens": T, "num_samples": G, "key": 0, **changed}
    padded = pad_prompts(prompts, uids=uids, pad_multiple=bucket)
    return jax.device_get(generate(policy, padded, **settings))


@functools.cache
def _sampled(name: str) -> Rollouts:
    return _rollouts(**SETTINGS[name])


def _row(rollouts: Rollouts, row: int) -> list[int]:
    """Returns a row's tokens up to its end; the rest must be 0."""
    return rollouts.tokens[row, : rollouts.lengths[row]].tolist()


def test_a_rollout_does_not_depend_on_its_neighbors_or_their_order():
    base, order = _sampled("plain"), [2, 0, 3, 1]
    shuffled = _rollouts(
        prompts=[PROMPTS[i] for i in order], uids=[UIDS[i] for i in order]
    )
    for place, prompt in enumerate(order):
        for g in range(G):
            assert _row(shuffled, place * G + g) == _row(base, prompt * G + g)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_a_prompt_alone_in_a_wider_bucket_with_more_samples_begins_alike(scan_layers):
    base = _sampled("plain")
    alone = _rollouts(
        tiny_policy(scan_layers=scan_layers),
        PROMPTS[1:2],
        UIDS[1:2],
        bucket=32,
        num_samples=2 * G,
    )
    for g in range(G):
        assert _row(alone, g) == _row(base, G + g)
        length = alone.lengths[g]
        np.testing.assert_allclose(
            alone.logprobs[g, :length], base.logprobs[G + g, :length], atol=1e-5
        )


def test_equal_draws_are_equal_rollouts_and_only_those():
    prompts = [PROMPTS[0]] * 4
    draw = functools.partial(
        _rollouts, prompts=prompts, uids=[5, 5, 6, 7], min_new_tokens=3
    )
    twice = draw()
    rows = [tuple(_row(twice, row)) for row in range(4 * G)]
    assert rows[:G] == rows[G : 2 * G]
    assert len(set(rows)) == 3 * G
    other = draw(key=1)
    assert not set(rows) & {tuple(_row(other, row)) for row in range(4 * G)}


def test_keys_differ_across_seeds_steps_prompts_and_samples():
    uids = np.array([0, 1, 2, 2**16, 2**31, 2**32 - 1], np.uint32)
    drawn = [
        jax.random.key_data(row_keys(step_key, uids, 8))
        for seed in (0, 1, 2**32 - 1)
        for step in (0, 1, 2, 1000)
        for step_key in [jax.random.fold_in(jax.random.key(seed), step)]
    ]
    keys = np.concatenate(drawn)
    assert len(np.unique(keys, axis=0)) == len(keys) == 3 * 4 * 6 * 8


def test_a_tokens_key_is_its_rows_and_its_indexs_alone():
    """Rows may be at different tokens, in any order and with any other rows."""
    keys = row_keys(jax.random.key(0), np.arange(3, dtype=np.uint32), 2)
    index = np.array([0, 5, 2**20, 0, 1, 5])
    data = jax.random.key_data(token_keys(keys, index))
    alone = [
        jax.random.key_data(jax.random.fold_in(keys[row], index[row]))
        for row in range(6)
    ]
    np.testing.assert_array_equal(data, alone)
    assert len(np.unique(data, axis=0)) == 6


@functools.partial(jax.jit, static_argnames="graphdef")
def _logprobs(graphdef, params, batch, sampling):
    policy = nnx.merge(graphdef, params)
    return token_scores(policy, batch, sampling, logits_chunk_size=0).logprobs


def _scored(policy: Transformer, rollouts: Rollouts, **settings) -> np.ndarray:
    batch = batch_from_rollouts(rollouts, np.zeros(len(rollouts.lengths), np.float32))
    width = rollouts.tokens.shape[1]
    sampling = SamplingParams.from_config(
        SamplingConfig(max_new_tokens=width, **settings)
    )
    return np.asarray(_logprobs(*nnx.split(policy), batch, sampling))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_scorer_finds_the_samplers_logprobs(name):
    rollouts = _sampled(name)
    scored_BT = _scored(POLICY, rollouts, **SETTINGS[name])
    inside_BT = np.arange(T) < rollouts.lengths[:, None]
    assert (rollouts.logprobs[inside_BT] < 0).any()
    np.testing.assert_allclose(
        scored_BT[inside_BT], rollouts.logprobs[inside_BT], rtol=0, atol=1e-5
    )


def test_no_setting_compiles_again():
    _sampled("plain")
    compiled = sample._cache_size()
    for name in SETTINGS:
        _sampled(name)
    _rollouts(temperature=0.0, key=jax.random.key(3))
    _rollouts(prompts=PROMPTS[::-1], uids=[1, 2, 3, 4])
    assert sample._cache_size() == compiled


@pytest.mark.parametrize("name", SETTINGS)
def test_a_completion_ends_with_its_end_token_and_nothing_follows(name):
    rollouts = _sampled(name)
    shortest = SETTINGS[name].get("min_new_tokens", 0) + 1
    for row, length in enumerate(rollouts.lengths):
        tokens = rollouts.tokens[row]
        ends = np.flatnonzero(tokens == EOS)
        assert ends.tolist() == ([length - 1] if rollouts.finished[row] else [])
        assert length == T or rollouts.finished[row]
        assert length >= shortest
        assert not tokens[length:].any()
        assert not rollouts.logprobs[row, length:].any()
    reasons = rollouts.finish_reasons
    assert reasons == ["stop" if done else "length" for done in rollouts.finished]


def test_both_ways_to_end_occur():
    assert set(_sampled("plain").finish_reasons) == {"stop", "length"}


def test_decoding_takes_as_many_steps_as_the_longest_completion(monkeypatch):
    steps = []
    decode = Transformer.decode_step

    def counted(self, tokens, index, prefix, *, column, **given):
        jax.debug.callback(lambda column: steps.append(int(column)), column)
        return decode(self, tokens, index, prefix, column=column, **given)

    monkeypatch.setattr(Transformer, "decode_step", counted)
    # Half of the tokens end a completion, so its mean length is 2.
    policy = tiny_policy(num_layers=1, eos_ids=tuple(range(0, VOCAB_SIZE, 2)))
    rollouts = _rollouts(policy, max_new_tokens=40)
    jax.effects_barrier()
    assert rollouts.finished.all()
    assert sorted(steps) == list(range(rollouts.lengths.max()))
    assert rollouts.lengths.max() < 40
    assert not rollouts.tokens[:, rollouts.lengths.max() :].any()


def test_greedy_is_the_argmax_of_the_policys_logits():
    policy = tiny_policy(eos_ids=())
    count = 20
    rollouts = _rollouts(policy, max_new_tokens=count, temperature=0.0, num_samples=1)
    rows = np.zeros((len(PROMPTS), max(map(len, PROMPTS)) + count), np.int32)
    lengths = np.array([len(prompt) for prompt in PROMPTS])
    for row, prompt in zip(rows, PROMPTS, strict=True):
        row[: len(prompt)] = prompt
    every = np.arange(len(PROMPTS))
    for index in range(count):
        mask = np.arange(rows.shape[1]) < lengths[:, None]
        logits = np.asarray(forward(*nnx.split(policy), rows, mask))
        best = logits[every, lengths - 1].argmax(axis=-1)
        assert rollouts.tokens[:, index].tolist() == best.tolist()
        rows[every, lengths] = best
        lengths += 1
    assert not rollouts.logprobs.any()


def test_first_tokens_have_the_policys_frequencies():
    """Chi-square with 22 degrees of freedom exceeds 48.3 once in a thousand times.

    One token is also the shortest completion that can be sampled and scored.
    """
    count = 4000
    drawn = _rollouts(
        prompts=PROMPTS[:1],
        uids=[0],
        max_new_tokens=1,
        num_samples=count,
        temperature=0.7,
    )
    prompt = np.array(PROMPTS[:1])
    logits = forward(*nnx.split(POLICY), prompt, np.ones(prompt.shape, bool))[0, -1]
    expected = count * np.asarray(jax.nn.softmax(logits / 0.7))
    observed = np.bincount(drawn.tokens[:, 0], minlength=VOCAB_SIZE)
    assert ((observed - expected) ** 2 / expected).sum() < 48.3
    assert (drawn.lengths == 1).all()
    assert (drawn.finished == (drawn.tokens[:, 0] == EOS)).all()
    scored = _scored(POLICY, drawn, temperature=0.7)
    np.testing.assert_allclose(scored, drawn.logprobs, rtol=0, atol=1e-5)


def test_prompts_may_be_lists_and_keys_of_either_style_or_a_seed():
    lists = jax.device_get(
        generate(POLICY, PROMPTS, max_new_tokens=T, num_samples=G, key=3)
    )
    keys = {"new": jax.random.key(3), "raw": jax.random.PRNGKey(3)}
    for key in keys.values():
        same = _rollouts(uids=range(4), key=key)
        jax.tree.map(np.testing.assert_array_equal, same, lists)
    assert lists.weight_version == 0


def test_prompts_are_padded_to_the_bucket_and_keep_their_ids():
    prompts = pad_prompts([[4, 5, 6], [9]], uids=[1, 2**32 - 1], pad_multiple=2)
    np.testing.assert_array_equal(prompts.tokens, [[4, 5, 6, 0], [9, 0, 0, 0]])
    np.testing.assert_array_equal(prompts.lengths, [3, 1])
    assert prompts.uid.tolist() == [1, 2**32 - 1]
    assert pad_prompts([[1] * 4], uids=[0], pad_multiple=4).tokens.shape == (1, 4)


@pytest.mark.parametrize("prompts", [[], [[1], []]])
def test_an_empty_prompt_is_refused(prompts):
    with pytest.raises(ValueError, match="at least one token"):
        pad_prompts(prompts, uids=range(len(prompts)), pad_multiple=4)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([4, 5, 6], "prompts[0]=4 is not a list of token ids; give a list of lists"),
        (["two plus two"], "prompts[0]='two plus two' is not a list of token ids"),
        ([[4, 5], [4, 0.5]], "prompts[1]=[4, 0.5] is not a list of token ids"),
        ([[4, 500]], "prompts holds the id 500; the vocabulary has 0 to 22"),
        ([[-1, 4]], "prompts holds the id -1; the vocabulary has 0 to 22"),
    ],
)
def test_invalid_prompts_are_refused(prompts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        generate(POLICY, prompts, max_new_tokens=T)


@pytest.mark.parametrize(
    ("key", "told"),
    [(None, "None"), (0.5, "0.5"), (jax.random.split(jax.random.key(0)), "Array")],
)
def test_invalid_keys_are_refused(key, told):
    with pytest.raises(ValueError, match=f"key={told}.*; give a seed such as 0"):
        generate(POLICY, PROMPTS, max_new_tokens=T, key=key)


def test_numpys_numbers_are_numbers():
    found = _rollouts(
        max_new_tokens=np.int64(T),
        num_samples=np.int32(G),
        key=np.int64(0),
        temperature=np.float32(0.5),
        top_k=np.array(5),
    )
    expected = _rollouts(temperature=0.5, top_k=5)
    np.testing.assert_array_equal(found.tokens, expected.tokens)


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1.0},
        {"top_p": 0.0},
        {"top_k": -1},
        {"top_k": np.float64(2.5)},
        {"min_new_tokens": 12},
        {"num_samples": 0},
        {"num_samples": -1},
        {"num_samples": 1.5},
    ],
)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        generate(POLICY, PROMPTS, max_new_tokens=12, **bad)


def test_settings_may_be_whole_numbers():
    """People type temperature=1 and top_p=1."""
    typed = generate(
        POLICY, PROMPTS, max_new_tokens=T, num_samples=G, temperature=1, top_p=1
    )
    expected = generate(POLICY, PROMPTS, max_new_tokens=T, num_samples=G)
    assert (jnp.asarray(typed.tokens) == expected.tokens).all()
