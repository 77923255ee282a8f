"""ReasonScore, contrast and contexts: by hand and by the published procedure."""

import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax.config import REASONING_WORDS
from sae_jax.sae import TSAE
from sae_jax.stats.features import (
    OutcomeMoments,
    ReasonSums,
    cohens_d,
    cohens_d_interval,
    empty_contexts,
    mark_near_words,
    outcome_moments,
    reason_score,
    reason_sums,
    sequence_contexts,
    word_phrases,
    word_variants,
)


def test_spellings_are_the_34_published_ones():
    """There are eight words in four spellings, and But and Another in one."""
    spellings = [v for word in REASONING_WORDS for v in word_variants(word)]
    assert len(spellings) == 8 * 4 + 2
    assert word_variants("let me") == ("let me", " let me", "Let me", " Let me")
    assert word_variants("But") == ("But",)


def test_a_phrase_is_matched_whole_with_one_before_and_two_after():
    """Tokens 7 8 are "let me"; 7 or 8 alone does not match."""
    tokens = np.array([[1, 7, 8, 1, 1, 1, 7, 1], [8, 1, 1, 1, 1, 1, 7, 8]])
    near = mark_near_words(tokens, [[[7, 8]]])
    np.testing.assert_array_equal(
        near[:, :, 0].astype(int),
        [[1, 1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]],
    )


def test_words_have_their_own_marks_and_variants_share_one():
    tokens = np.array([[1, 1, 5, 1, 1, 1, 1, 6, 1, 9]])
    near = mark_near_words(tokens, [[[5], [6]], [[9]]], before=0, after=0)
    np.testing.assert_array_equal(np.nonzero(near[0, :, 0])[0], [2, 7])
    np.testing.assert_array_equal(np.nonzero(near[0, :, 1])[0], [9])


def test_a_phrase_longer_than_the_row_is_not_there():
    assert not mark_near_words(np.array([[1, 2]]), [[[1, 2, 3]]]).any()


def test_a_word_that_the_tokenizer_drops_is_an_error():
    with pytest.raises(ValueError, match="makes no token of 'hmm'"):
        word_phrases(lambda text: [] if "mm" in text else [1], ("wait", "hmm"))


def by_prompt(sums, counts) -> ReasonSums:
    return ReasonSums(sums=np.asarray(sums, float), counts=np.asarray(counts, float))


def test_score_by_hand():
    """Two words, two latents; columns: word a, word b, near, elsewhere.

    Latent 0: means 1 and 1 over the words, so H = log 2 and breadth 1; near mean 1.
    Latent 1: means 3 and 0, H = 0, breadth 0; near mean 1 1/2; elsewhere 1 against 3/4.
    Shares near: 1/2.5 and 1.5/2.5; elsewhere: .75/1.75 and 1/1.75.
    """
    sums = by_prompt([[[2, 6], [2, 0], [4, 6], [3, 4]]], [[2, 2, 4, 4]])
    expected = [1 / 2.5 - 0.75 / 1.75, -1 / 1.75]
    np.testing.assert_allclose(reason_score(sums), expected, rtol=1e-12)


def test_score_equals_the_published_procedures():
    """The authors' steps on activations: means by word, near and elsewhere; shares."""
    rng = np.random.default_rng(0)
    words, latents = 3, 5
    f = rng.random((2, 30, latents)) * (rng.random((2, 30, latents)) < 0.5)
    near = rng.random((2, 30, words)) < 0.2
    mean = [f[near[:, :, w]].mean(axis=0) for w in range(words)]
    any_word = near.any(axis=2)
    p = np.array(mean) / np.sum(mean, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        h = -np.where(p > 0, p * np.log(p), 0).sum(axis=0) / np.log(words)
    up, down = f[any_word].mean(axis=0), f[~any_word].mean(axis=0)
    expected = up / up.sum() * h**0.7 - down / down.sum()
    sums = reason_sums(
        copying(latents),
        jnp.asarray(f, jnp.float32),
        near,
        mask=np.ones((2, 30), bool),
        prompts=np.array([0, 1]),
        num_prompts=2,
    )
    np.testing.assert_allclose(reason_score(sums), expected, atol=1e-6)


def copying(width: int, length: float = 1.0) -> TSAE:
    return TSAE(
        encoder=jnp.eye(width),
        encoder_bias=jnp.zeros(width),
        decoder=jnp.eye(width) * length,
        decoder_bias=jnp.zeros(width),
        threshold=jnp.zeros(width),
        group_sizes=(width,),
    )


def test_decoder_norms_are_folded_and_what_is_not_counted_is_not_read():
    x = jnp.array([[[1.0, 2.0], [4.0, 0.0], [jnp.nan, 1.0]]])
    near = np.array([[[True], [False], [True]]])
    counted = np.array([[True, True, False]])
    sums = reason_sums(
        copying(2, 3.0), x, near, mask=counted, prompts=np.array([1]), num_prompts=2
    )
    np.testing.assert_array_equal(sums.counts, [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(sums.sums[1], [[3, 6], [3, 6], [12, 0]])
    assert not sums.sums[0].any()


def contrasted(means, right, prompts, judged=None) -> OutcomeMoments:
    right = np.array(right, bool)
    return outcome_moments(
        np.array(means, float),
        correct=right,
        verified=np.ones(len(right), bool) if judged is None else np.array(judged),
        prompts=np.array(prompts),
        num_prompts=max(prompts) + 1,
    )


def test_contrast_by_hand():
    """Right 4 and 6, wrong 1 and 3: difference 3, each spread 2, pooled 2+2 over 2."""
    sums = contrasted([[4], [6], [1], [3]], [1, 1, 0, 0], [0, 1, 0, 1])
    np.testing.assert_allclose(cohens_d(sums), 3 / 2**0.5)


def test_contrast_of_a_constant_is_zero_though_rounding_is_not():
    sums = contrasted([[0.7, 1]] * 3 + [[0.7, 2]] * 3, [1, 0, 1, 0, 1, 0], [0] * 6)
    assert cohens_d(sums)[0] == 0.0
    assert cohens_d(sums)[1] != 0.0


def test_contrast_waits_for_two_of_each_and_leaves_the_unverified_out():
    sums = contrasted(
        [[4], [6], [1], [3]], [1, 1, 0, 0], [0] * 4, [True, True, True, False]
    )
    np.testing.assert_array_equal(sums.num_rollouts, [[1, 2]])
    np.testing.assert_array_equal(cohens_d(sums), [0.0])


def test_contrast_sums_add_up_and_have_an_interval():
    rng = np.random.default_rng(1)
    means = rng.normal(size=(40, 1)) + np.tile([[0.0], [2.0]], (20, 1))
    right = np.tile([0, 1], 20)
    prompts = np.repeat(np.arange(10), 4)
    whole = contrasted(means, right, prompts)
    halves = contrasted(means[:20], right[:20], prompts[:20] * 0 + prompts[:20])
    pad = OutcomeMoments(
        num_rollouts=np.pad(halves.num_rollouts, ((0, 5), (0, 0))),
        sums=np.pad(halves.sums, ((0, 5), (0, 0), (0, 0))),
        squares=np.pad(halves.squares, ((0, 5), (0, 0), (0, 0))),
    )
    rest = contrasted(means[20:], right[20:], prompts[20:])
    np.testing.assert_allclose(cohens_d(pad + rest), cohens_d(whole))
    found = cohens_d_interval(whole, num_resamples=200)
    assert 0 < found.low[0] < found.value[0] < found.high[0]
    again = cohens_d_interval(whole, num_resamples=200)
    np.testing.assert_array_equal(found.low, again.low)


def test_contexts_are_the_highest_places_of_different_sequences():
    f = np.zeros((3, 4, 2), np.float32)
    f[0, 1, 0], f[0, 2, 0] = 5, 4  # one place per sequence: the 5
    f[1, 3, 0] = 9
    f[2, 0, 0] = 7
    f[2, 2, 1] = 1
    f[1, 0, 1] = np.inf  # not counted
    counted = np.ones((3, 4), bool)
    counted[1, 0] = False
    total = empty_contexts(2, 2)
    for part in (slice(0, 1), slice(1, 3)):
        numbers = jnp.arange(3)[part]
        total = total + sequence_contexts(f[part], counted[part], numbers)
    np.testing.assert_array_equal(total.value, [[9, 7], [1, 0]])
    np.testing.assert_array_equal(total.sequence, [[1, 2], [2, -1]])
    np.testing.assert_array_equal(total.position, [[3, 0], [2, -1]])
