"""Which latents are about reasoning: ReasonScore, contrast, and where each one fires.

    ReasonScore = mu+ / sum mu+ * (H / log W)^0.7 - mu- / sum mu-

with mu+ and mu- a latent's mean near reasoning words and elsewhere, H the entropy of
its share over the W words, sums over all latents, and every latent times the length of
its decoder row. "Near" is from one token before to two after an occurrence; a phrase is
matched whole. https://arxiv.org/abs/2503.18878, and its authors' code.

    contrast = (mean of right - mean of wrong) / pooled standard deviation

of a rollout's mean activation: Cohen's d, for models that never write those words.
Both come from sums per prompt, so that an interval can be had by drawing prompts.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sae_jax.resample import Interval, interval
from sae_jax.sae import TSAE

# As published: a lower-case word stands for four variants, a capital one for itself.
REASONING_WORDS = (
    "alternatively",
    "hmm",
    "maybe",
    "wait",
    "perhaps",
    "let me",
    "therefore",
    "however",
    "But",
    "Another",
)
BEFORE, AFTER = 1, 2  # tokens around an occurrence that count as near
ENTROPY_POWER = 0.7

Phrases = Sequence[Sequence[Sequence[int]]]  # [W][variant][token]


def variants(word: str) -> tuple[str, ...]:
    """Returns the spellings counted as `word`: with and without space and capital."""
    if word[0].isupper():
        return (word,)
    capital = word[0].upper() + word[1:]
    return (word, f" {word}", capital, f" {capital}")


def word_phrases(
    tokenize: Callable[[str], Sequence[int]], words: Sequence[str] = REASONING_WORDS
) -> Phrases:
    """Returns the token ids of every variant of every word.

    Variants that the tokenizer makes no token of are left out; a word of which none is
    left is a ValueError.
    """
    phrases = [
        [ids for variant in variants(word) if (ids := list(tokenize(variant)))]
        for word in words
    ]
    for word, spellings in zip(words, phrases, strict=True):
        if not spellings:
            raise ValueError(f"the tokenizer makes no token of {word!r}")
    return phrases


def near_words(
    tokens: Int[np.ndarray, "S T"],
    phrases: Phrases,
    *,
    before: int = BEFORE,
    after: int = AFTER,
) -> Bool[np.ndarray, "S T W"]:
    """Returns for each token and word whether an occurrence is near.

    An occurrence at p..q, all its tokens, marks p - before to q + after of its row.
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
    """Per prompt, sums of latents near each word, near any, and elsewhere.

    Columns: the W words, then any, then elsewhere. Written by `reason_sums`; those of
    other tokens of the same prompts are added, those of other prompts joined.
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
    counted: Bool[np.ndarray, "S T"],
    prompts: Int[np.ndarray, " S"],
    total: int,
) -> ReasonSums:
    """Returns the sums of sequences that belong to `prompts`, of `total` in all.

    `counted` leaves out padding and special tokens; marks reach across them.
    """
    kept = counted[:, :, None]
    any_word = near.any(axis=2, keepdims=True)
    classes = np.concatenate([near, any_word, ~any_word], axis=2) & kept
    per_sequence = np.asarray(_class_sums(tsae, x, classes), np.float64)
    sums = np.zeros((total, *per_sequence.shape[1:]))
    np.add.at(sums, prompts, per_sequence)
    counts = np.zeros((total, classes.shape[2]))
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
    """Returns the ReasonScore of every latent, over all prompts."""
    return _reason_score((sums.sums.sum(axis=0), sums.counts.sum(axis=0)))


def reason_score_interval(sums: ReasonSums, **options: Any) -> Interval:
    """Returns the ReasonScore with its interval over prompts (see `resample`)."""
    return interval(_reason_score, (sums.sums, sums.counts), **options)


def _reason_score(
    pooled: tuple[Float[np.ndarray, "W+2 Z"], Float[np.ndarray, " W+2"]],
) -> Float[np.ndarray, " Z"]:
    sums, counts = pooled
    means = sums / np.maximum(counts, 1)[:, None]
    by_word, near, elsewhere = means[:-2], means[-2], means[-1]
    breadth = np.ones_like(near)
    if len(by_word) > 1:
        share = _share(by_word, axis=0)
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        entropy = np.maximum(-(share * logs).sum(axis=0), 0.0)
        breadth = (entropy / np.log(len(by_word))) ** ENTROPY_POWER
    return _share(near, axis=0) * breadth - _share(elsewhere, axis=0)


def _share(values: Any, *, axis: int) -> Any:
    total = values.sum(axis=axis, keepdims=True)
    return values / np.where(total > 0, total, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContrastSums:
    """Per prompt, moments of its rollouts' mean activations: wrong (0), right (1)."""

    rollouts: Float[np.ndarray, "P 2"]
    sums: Float[np.ndarray, "P 2 Z"]
    squares: Float[np.ndarray, "P 2 Z"]

    def __add__(self, other: Self) -> Self:
        """Returns the moments over the rollouts of both."""
        return type(self)(
            rollouts=self.rollouts + other.rollouts,
            sums=self.sums + other.sums,
            squares=self.squares + other.squares,
        )


def contrast_sums(
    means: Float[np.ndarray, "B Z"],
    *,
    right: Bool[np.ndarray, " B"],
    judged: Bool[np.ndarray, " B"],
    prompts: Int[np.ndarray, " B"],
    total: int,
) -> ContrastSums:
    """Returns the moments of rollouts; those that could not be judged do not enter."""
    means = np.asarray(means, np.float64)[judged]
    place = (prompts[judged], right[judged].astype(np.int64))
    shape = (total, 2)
    rollouts = np.zeros(shape)
    sums, squares = np.zeros((2, *shape, means.shape[1]))
    np.add.at(rollouts, place, 1)
    np.add.at(sums, place, means)
    np.add.at(squares, place, means**2)
    return ContrastSums(rollouts=rollouts, sums=sums, squares=squares)


def contrast(sums: ContrastSums) -> Float[np.ndarray, " Z"]:
    """Returns Cohen's d of right against wrong, over all prompts.

    0 where a latent does not vary, and everywhere while there are fewer than two right
    or two wrong rollouts.
    """
    totals = (sums.rollouts, sums.sums, sums.squares)
    return _cohens_d(tuple(part.sum(axis=0) for part in totals))


def contrast_interval(sums: ContrastSums, **options: Any) -> Interval:
    """Returns Cohen's d with its interval over prompts (see `resample`)."""
    return interval(_cohens_d, (sums.rollouts, sums.sums, sums.squares), **options)


def _cohens_d(pooled: tuple[np.ndarray[Any, Any], ...]) -> Float[np.ndarray, " Z"]:
    rollouts, sums, squares = pooled
    if rollouts.min() < 2:
        return np.zeros(sums.shape[1])
    means = sums / rollouts[:, None]
    spread = np.maximum(squares - rollouts[:, None] * means**2, 0.0)
    # Rounding leaves this much of a constant: no spread at all.
    spread = np.where(spread > 1e-12 * squares, spread, 0.0)
    variance = spread.sum(axis=0) / (rollouts.sum() - 2)
    deviation = np.sqrt(variance)
    varies = deviation > 0
    return np.where(varies, (means[1] - means[0]) / np.where(varies, deviation, 1), 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TopContexts:
    """Where each latent fires most: at most one place per sequence, the highest first.

    `value` is 0 and `sequence` -1 where a latent has fired in fewer than K sequences.
    """

    value: Float[Array, "Z K"]
    sequence: Int[Array, "Z K"]
    position: Int[Array, "Z K"]

    def __add__(self, other: Self) -> Self:
        """Returns the highest K of both; at equal height, the earlier added first."""
        joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), self, other)
        value, best = jax.lax.top_k(joined.value, self.value.shape[1])
        return type(self)(
            value=value,
            sequence=jnp.take_along_axis(joined.sequence, best, axis=1),
            position=jnp.take_along_axis(joined.position, best, axis=1),
        )


def no_contexts(latents: int, k: int) -> TopContexts:
    """Returns the contexts of no sequence: the zero of their addition."""
    nowhere = jnp.full((latents, k), -1, jnp.int32)
    return TopContexts(
        value=jnp.zeros((latents, k), jnp.float32), sequence=nowhere, position=nowhere
    )


@jax.jit
def contexts(
    f: Float[Array, "S T Z"], counted: Bool[Array, "S T"], sequence: Int[Array, " S"]
) -> TopContexts:
    """Returns each sequence's highest place for each latent: K = S, not yet ordered."""
    f = jnp.where(counted[:, :, None], f, 0.0)
    value_ZS = f.max(axis=1).T
    fired_ZS = value_ZS > 0
    return TopContexts(
        value=value_ZS,
        sequence=jnp.where(fired_ZS, sequence[None].astype(jnp.int32), -1),
        position=jnp.where(fired_ZS, f.argmax(axis=1).T.astype(jnp.int32), -1),
    )
