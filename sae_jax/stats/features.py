"""Finds reasoning latents: ReasonScore, effect sizes, and where each latent fires.

    ReasonScore = mu+ / sum mu+ * (H / log W)^0.7 - mu- / sum mu-

Here mu+ and mu- are a latent's mean near reasoning words and elsewhere, and H is the
entropy of its share over the W words. Sums run over all latents, and every latent is
multiplied by the length of its decoder row. "Near" means from one token before to two
after an occurrence. A phrase is matched as a whole. See
https://arxiv.org/abs/2503.18878, and its authors' code.

    Cohen's d = (mean of correct - mean of incorrect) / pooled standard deviation

of a rollout's mean activation is for models that never write those words. Both are
computed from sums per prompt, so that prompts can be resampled for an interval.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from job_jax.resampling import Interval
from sae_jax.config import REASONING_WORDS
from sae_jax.sae import TSAE
from sae_jax.stats.resample import bootstrap_interval

TOKENS_BEFORE, TOKENS_AFTER = 1, 2  # tokens around an occurrence that count as near
ENTROPY_POWER = 0.7

Phrases = Sequence[Sequence[Sequence[int]]]  # [W][variant][token]


def word_variants(word: str) -> tuple[str, ...]:
    """Returns the spellings that count: with and without a space, or a capital.

    >>> word_variants("wait")
    ('wait', ' wait', 'Wait', ' Wait')
    """
    if word[0].isupper():
        return (word,)
    capital = word[0].upper() + word[1:]
    return (word, f" {word}", capital, f" {capital}")


def word_phrases(
    tokenize: Callable[[str], Sequence[int]], words: Sequence[str] = REASONING_WORDS
) -> Phrases:
    """Returns the token ids of every variant of every word.

    Variants without tokens are left out; a word without any variant raises ValueError.

    >>> word_phrases(lambda text: [len(text)], ["wait"])
    [[[4], [5], [4], [5]]]
    """
    phrases = [
        [ids for variant in word_variants(word) if (ids := list(tokenize(variant)))]
        for word in words
    ]
    for word, spellings in zip(words, phrases, strict=True):
        if not spellings:
            raise ValueError(f"the tokenizer makes no token of {word!r}; leave it out")
    return phrases


def mark_near_words(
    tokens: Int[np.ndarray, "S T"],
    phrases: Phrases,
    *,
    before: int = TOKENS_BEFORE,
    after: int = TOKENS_AFTER,
) -> Bool[np.ndarray, "S T W"]:
    """Returns for each token and word whether the token is near an occurrence.

    An occurrence at tokens p..q marks the tokens p - before to q + after in its row.

    >>> near = mark_near_words(np.array([[1, 2, 7, 3, 4, 5]]), [[[7]]])
    >>> near[0, :, 0].tolist()
    [False, True, True, True, True, False]
    """
    near = np.zeros((*tokens.shape, len(phrases)), bool)
    length = tokens.shape[1]
    for w, spellings in enumerate(phrases):
        for ids in spellings:
            if len(ids) > length:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(tokens, len(ids), axis=1)
            rows, starts = np.nonzero((windows == np.asarray(ids)).all(axis=2))
            for offset in range(-before, len(ids) + after):
                at = starts + offset
                inside = (at >= 0) & (at < length)
                near[rows[inside], at[inside], w] = True
    return near


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReasonSums:
    """Sums of latents per prompt: near each word, near any word, and elsewhere.

    The columns are the W words, then any word, then elsewhere. Made by `reason_sums`.
    Sums of further tokens of the same prompts can be added.
    """

    sums: Float[np.ndarray, "P W+2 Z"]
    counts: Float[np.ndarray, "P W+2"]

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        return type(self)(
            sums=self.sums + other.sums, counts=self.counts + other.counts
        )


def reason_sums(
    tsae: TSAE,
    x: Float[Array, "S T D"],
    near: Bool[np.ndarray, "S T W"],
    *,
    mask: Bool[np.ndarray, "S T"],
    prompts: Int[np.ndarray, " S"],
    num_prompts: int,
) -> ReasonSums:
    """Returns the sums of S sequences, each of which belongs to one of the prompts.

    `near` comes from `mark_near_words`; `mask` leaves out padding and special tokens.

    >>> tsae = TSAE.init(0, width=8, latents=32)
    >>> x = jax.random.normal(jax.random.key(1), (2, 6, 8))
    >>> sums = reason_sums(
    ...     tsae, x, np.arange(6)[None, :, None] < np.array([2, 4])[:, None, None],
    ...     mask=np.ones((2, 6), bool), prompts=np.array([0, 0]), num_prompts=1,
    ... )
    >>> sums.counts.tolist(), reason_score(sums).shape  # near the word, any, elsewhere
    ([[6.0, 6.0, 6.0]], (32,))
    """
    kept = mask[:, :, None]
    any_word = near.any(axis=2, keepdims=True)
    classes = np.concatenate([near, any_word, ~any_word], axis=2) & kept
    per_sequence = np.asarray(_class_sums(tsae, x, classes), np.float64)
    sums = np.zeros((num_prompts, *per_sequence.shape[1:]))
    np.add.at(sums, prompts, per_sequence)
    counts = np.zeros((num_prompts, classes.shape[2]))
    np.add.at(counts, prompts, classes.sum(axis=1))
    return ReasonSums(sums=sums, counts=counts)


@jax.jit
def _class_sums(
    tsae: TSAE, x: Float[Array, "S T D"], classes: Bool[Array, "S T C"]
) -> Float[Array, "S C Z"]:
    used = classes.any(axis=2, keepdims=True)
    f = tsae.encode(jnp.where(used, x, jnp.zeros_like(x)))
    folded = f * jnp.linalg.norm(tsae.decoder, axis=1)[None, None]
    return jnp.einsum(
        "stc,stz->scz",
        classes.astype(jnp.float32),
        folded,
        precision=jax.lax.Precision.HIGHEST,
    )


def reason_score(sums: ReasonSums) -> Float[np.ndarray, " Z"]:
    """Returns the ReasonScore of every latent, over all prompts (see `reason_sums`)."""
    return _reason_score_of_sums((sums.sums.sum(axis=0), sums.counts.sum(axis=0)))


def _reason_score_of_sums(
    pooled: tuple[Float[np.ndarray, "W+2 Z"], Float[np.ndarray, " W+2"]],
) -> Float[np.ndarray, " Z"]:
    sums, counts = pooled
    means = sums / np.maximum(counts, 1)[:, None]
    by_word, near, elsewhere = means[:-2], means[-2], means[-1]
    breadth = np.ones_like(near)
    if len(by_word) > 1:
        share = _normalize(by_word, axis=0)
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        entropy = np.maximum(-(share * logs).sum(axis=0), 0.0)
        breadth = (entropy / np.log(len(by_word))) ** ENTROPY_POWER
    return _normalize(near, axis=0) * breadth - _normalize(elsewhere, axis=0)


def _normalize(values: Any, *, axis: int) -> Any:
    total = values.sum(axis=axis, keepdims=True)
    return values / np.where(total > 0, total, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutcomeMoments:
    """Moments of rollouts' mean activations per prompt: incorrect (0), correct (1)."""

    num_rollouts: Float[np.ndarray, "P 2"]
    sums: Float[np.ndarray, "P 2 Z"]
    squares: Float[np.ndarray, "P 2 Z"]

    def __add__(self, other: Self) -> Self:
        """Returns the moments over the rollouts of both."""
        return type(self)(
            num_rollouts=self.num_rollouts + other.num_rollouts,
            sums=self.sums + other.sums,
            squares=self.squares + other.squares,
        )


def outcome_moments(
    means: Float[np.ndarray, "B Z"],
    *,
    correct: Bool[np.ndarray, " B"],
    verified: Bool[np.ndarray, " B"],
    prompts: Int[np.ndarray, " B"],
    num_prompts: int,
) -> OutcomeMoments:
    """Returns the moments of B rollouts' mean activations; unverified ones are skipped.

    >>> means = np.array([[1.0], [2.0], [4.0], [5.0]])
    >>> moments = outcome_moments(
    ...     means, correct=np.arange(4) >= 2, verified=np.ones(4, bool),
    ...     prompts=np.array([0, 1, 0, 1]), num_prompts=2,
    ... )
    >>> cohens_d(moments).round(2).tolist()  # 3 over a standard deviation of 0.71
    [4.24]
    """
    means = np.asarray(means, np.float64)[verified]
    place = (prompts[verified], correct[verified].astype(np.int64))
    shape = (num_prompts, 2)
    rollouts = np.zeros(shape)
    sums, squares = np.zeros((2, *shape, means.shape[1]))
    np.add.at(rollouts, place, 1)
    np.add.at(sums, place, means)
    np.add.at(squares, place, means**2)
    return OutcomeMoments(num_rollouts=rollouts, sums=sums, squares=squares)


def cohens_d(sums: OutcomeMoments) -> Float[np.ndarray, " Z"]:
    """Returns Cohen's d of correct against incorrect rollouts, over all prompts.

    It is 0 if a latent does not vary, and for all latents with fewer than two correct
    or two incorrect rollouts (example: `outcome_moments`).
    """
    totals = (sums.num_rollouts, sums.sums, sums.squares)
    return _cohens_d_of_moments(tuple(part.sum(axis=0) for part in totals))


def cohens_d_interval(sums: OutcomeMoments, **options: Any) -> Interval:
    """Returns Cohen's d with its bootstrap interval over prompts (see `resample`)."""
    return bootstrap_interval(
        _cohens_d_of_moments, (sums.num_rollouts, sums.sums, sums.squares), **options
    )


def _cohens_d_of_moments(
    pooled: tuple[np.ndarray, ...],
) -> Float[np.ndarray, " Z"]:
    rollouts, sums, squares = pooled
    if rollouts.min() < 2:
        return np.zeros(sums.shape[1])
    means = sums / rollouts[:, None]
    spread = np.maximum(squares - rollouts[:, None] * means**2, 0.0)
    # Rounding leaves this much spread in a constant, which has none.
    spread = np.where(spread > 1e-12 * squares, spread, 0.0)
    variance = spread.sum(axis=0) / (rollouts.sum() - 2)
    deviation = np.sqrt(variance)
    varies = deviation > 0
    return np.where(varies, (means[1] - means[0]) / np.where(varies, deviation, 1), 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TopContexts:
    """The K positions where each latent fires most, one per sequence, highest first.

    `value` is 0 and `sequence` -1 if a latent has fired in fewer than K sequences.
    """

    value: Float[Array, "Z K"]
    sequence: Int[Array, "Z K"]
    position: Int[Array, "Z K"]

    def __add__(self, other: Self) -> Self:
        """Returns the highest K of both; for equal values, this one's come first."""
        joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), self, other)
        value, best = jax.lax.top_k(joined.value, self.value.shape[1])
        return type(self)(
            value=value,
            sequence=jnp.take_along_axis(joined.sequence, best, axis=1),
            position=jnp.take_along_axis(joined.position, best, axis=1),
        )


def empty_contexts(latents: int, k: int) -> TopContexts:
    """Returns empty contexts, to which `sequence_contexts` can be added.

    >>> f = jnp.array([[[0.0], [2.0]], [[3.0], [1.0]]])  # two sequences, one latent
    >>> top = empty_contexts(1, 2) + sequence_contexts(
    ...     f, jnp.ones((2, 2), bool), jnp.array([10, 11])
    ... )
    >>> top.value.tolist(), top.sequence.tolist(), top.position.tolist()
    ([[3.0, 2.0]], [[11, 10]], [[0, 1]])
    """
    nowhere = jnp.full((latents, k), -1, jnp.int32)
    return TopContexts(
        value=jnp.zeros((latents, k), jnp.float32), sequence=nowhere, position=nowhere
    )


@jax.jit
def sequence_contexts(
    f: Float[Array, "S T Z"], mask: Bool[Array, "S T"], sequence: Int[Array, " S"]
) -> TopContexts:
    """Returns each latent's highest position in each sequence (K = S, not sorted)."""
    f = jnp.where(mask[:, :, None], f, 0.0)
    value_ZS = f.max(axis=1).T
    fired_ZS = value_ZS > 0
    return TopContexts(
        value=value_ZS,
        sequence=jnp.where(fired_ZS, sequence[None].astype(jnp.int32), -1),
        position=jnp.where(fired_ZS, f.argmax(axis=1).T.astype(jnp.int32), -1),
    )
