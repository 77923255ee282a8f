"""Chooses which latents of an autoencoder are reasoning features, once, before RL.

The choice reads the policy's own completions before RL: activations on disk, each with
a verdict. RFGO compares completions of one problem. So the method `contrast` chooses by
effects within problems, on one half of the problems, and keeps the features that the
other half confirms (`sae_jax.stats.confirmation`). A method that ranks latents skips
latents that autoencoders of other seeds do not have. If no feature is left, the
selection is empty and says why.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import FeatureSelectionConfig
from rlvr_jax.probe.control_features import (
    draw_matched_latents,
    read_one_direction,
    read_random_directions,
)
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.probe.named_features import (
    check_named_features,
    read_named_latents,
    tokenize_words,
)
from rlvr_jax.probe.selection import FeatureSelection, HalvesAgreement
from sae_jax.sae import TSAE
from sae_jax.stats.confirmation import Confirmation, confirm_effects
from sae_jax.stats.feature_statistics import FeatureStatistics, sequence_statistics
from sae_jax.stats.features import (
    ReasonSums,
    mark_near_words,
    reason_score,
    reason_sums,
)
from sae_jax.stats.within_prompts import WithinPromptEffect, WithinPromptSums

# Latents that fire on fewer tokens than this are called dead.
_MIN_FIRINGS = 10


class _Choice(NamedTuple):
    """Chosen latents with weights, and every latent's score, which sets its sign."""

    latents: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, " R"]
    score: Float[np.ndarray, " Z"]
    confirmation: Confirmation | None = None
    refusal: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Corpus:
    """The measured properties of every latent. Made by `_read_corpus`."""

    alive: Bool[np.ndarray, " Z"]
    usable: Bool[np.ndarray, " Z"]  # alive, and stable if there are other seeds
    rate: Float[np.ndarray, " Z"]
    rms: Float[np.ndarray, " Z"]
    within: WithinPromptSums


def completion_statistics(labeled: LabeledCorpus, tsae: TSAE) -> FeatureStatistics:
    """Returns sums of every latent over each completion, one row per completion."""
    parts = []
    for block, outcomes_B in labeled.blocks():
        statistics = jax.device_get(
            _encode_statistics(tsae, block.x, block.mask, outcomes_B)
        )
        real_B = labeled.corpus.block_document_ids(block) >= 0
        parts.append(jax.tree.map(lambda a, rows=real_B: a[rows], statistics))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


@jax.jit
def _encode_statistics(
    tsae: TSAE,
    x: Float[Array, "S T D"],
    mask: Bool[Array, "S T"],
    outcome: Int[Array, " S"],
) -> FeatureStatistics:
    x = jnp.where(mask[:, :, None], x, 0.0)
    return sequence_statistics(tsae.encode(x), mask=mask, outcome=outcome)


def select_features(
    config: FeatureSelectionConfig,
    tsae: TSAE,
    labeled: LabeledCorpus,
    *,
    layer: int,
    seed_cosine: Float[np.ndarray, " Z"] | None,
    tokenize: Callable[[str], Sequence[int]],
    seed: int,
) -> FeatureSelection:
    """Returns the reasoning features, or none with the reason in `refusal`.

    A latent that a list or a weights file names is kept even if it is dead or
    unstable; a method that ranks latents skips dead and unstable ones. Raises
    ConfigError if a name does not exist or a control is impossible.
    """
    corpus = _read_corpus(config, labeled, tsae, seed_cosine)
    choice = _choose_latents(config, tsae, labeled, corpus, tokenize, seed)
    latents, weights = choice.latents, choice.weights
    effect, q_values = _effects_of_features(choice, corpus.within)
    if config.control == "random_latents" and len(latents):
        latents = draw_matched_latents(
            _properties(corpus, tsae, seed_cosine),
            latents,
            usable=corpus.usable,
            seed=seed,
        )
        # A control's sign is found in the same way as a feature's.
        weights = np.abs(weights) * np.where(choice.score[latents] < 0, -1.0, 1.0)
        effect, q_values = corpus.within.effect().take(latents), None
    rms_R = corpus.rms[latents]
    selection = FeatureSelection(
        latents=tuple(int(z) for z in latents),
        weights=_floats(weights / max(np.abs(weights).sum(), 1e-300)),
        rms=_floats(np.where(rms_R > 0, rms_R, 1.0)),
        scores=_floats(choice.score[latents]),
        effects=_floats(effect.value),
        effect_errors=_floats(effect.error),
        q_values=None if q_values is None else _floats(q_values),
        seed_cosine=None if seed_cosine is None else _floats(seed_cosine[latents]),
        method=config.method,
        control=config.control,
        layer=layer,
        dead=tuple(int(z) for z in latents if not corpus.alive[z]),
        num_alive=int(corpus.alive.sum()),
        num_stable=None if seed_cosine is None else int(corpus.usable.sum()),
        num_completions=len(labeled.outcomes),
        halves=_halves_agreement(choice.confirmation, config.fdr),
        refusal=choice.refusal,
    )
    if config.control == "direction" and len(latents):
        return read_one_direction(selection, labeled)
    if config.control == "random_directions" and len(latents):
        rates = corpus.rate[latents]
        return read_random_directions(selection, labeled, rates=rates, seed=seed)
    return selection


def _effects_of_features(
    choice: _Choice, within: WithinPromptSums
) -> tuple[WithinPromptEffect, Float[np.ndarray, " R"] | None]:
    """Returns effects and q-values of chosen latents, on the second half if any.

    Without halves, effects are over all problems, and there are no q-values.
    """
    confirmation = choice.confirmation
    if confirmation is None:
        return within.effect().take(choice.latents), None
    at_R = np.array(
        [confirmation.latents.tolist().index(z) for z in choice.latents], np.int64
    )
    return confirmation.second.take(at_R), confirmation.q_values[at_R]


def _floats(values: Float[np.ndarray, " K"]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _halves_agreement(
    confirmation: Confirmation | None, fdr: float
) -> HalvesAgreement | None:
    if confirmation is None:
        return None
    return HalvesAgreement(
        num_problems=confirmation.num_prompts,
        num_candidates=len(confirmation.latents),
        num_confirmed=int(confirmation.confirmed(fdr).sum()),
        sign_agreement=confirmation.sign_agreement,
        correlation=confirmation.halves_correlation,
    )


def _read_corpus(
    config: FeatureSelectionConfig,
    labeled: LabeledCorpus,
    tsae: TSAE,
    seed_cosine: Float[np.ndarray, " Z"] | None,
) -> _Corpus:
    statistics = completion_statistics(labeled, tsae)
    total = jax.tree.map(lambda a: a.sum(axis=0), statistics)
    means_SZ = np.asarray(statistics.sum) / np.maximum(statistics.tokens, 1)[:, None]
    tokens = max(int(total.tokens), 1)
    alive_Z = np.asarray(total.nonzero) >= _MIN_FIRINGS
    stable_Z = True if seed_cosine is None else seed_cosine >= config.min_seed_cosine
    return _Corpus(
        alive=alive_Z,
        usable=alive_Z & stable_Z,
        rate=np.asarray(total.nonzero) / tokens,
        rms=np.sqrt(np.asarray(total.sum_squares) / tokens),
        within=labeled.within_problems(means_SZ),
    )


def _properties(
    corpus: _Corpus, tsae: TSAE, seed_cosine: Float[np.ndarray, " Z"] | None
) -> Float[np.ndarray, "Z M"]:
    """Returns the properties that a control matches: rate, decoder norm, stability."""
    norm_Z = np.linalg.norm(np.asarray(tsae.decoder), axis=1)
    columns = [
        np.log(np.maximum(column_Z, 1e-12)) for column_Z in (corpus.rate, norm_Z)
    ]
    if seed_cosine is not None:
        columns.append(seed_cosine)
    return np.stack(columns, axis=1)


def _choose_latents(
    config: FeatureSelectionConfig,
    tsae: TSAE,
    labeled: LabeledCorpus,
    corpus: _Corpus,
    tokenize: Callable[[str], Sequence[int]],
    seed: int,
) -> _Choice:
    """Returns the latents that the method chooses, with every latent's score."""
    if config.method in ("list", "weights_file"):
        check_named_features(config, tsae.latents, tokenize=tokenize)
        named = read_named_latents(config)
        return _Choice(*named, corpus.within.effect().value)
    nothing = np.array([], np.int64), np.array([])
    if not corpus.usable.any():
        refusal = (
            f"none of {corpus.alive.sum()} latents that fire has a seed cosine of "
            f"probe.features.min_seed_cosine={config.min_seed_cosine} or more; train "
            "the autoencoder longer or make it smaller (probe.sae)"
        )
        return _Choice(*nothing, np.zeros(tsae.latents), refusal=refusal)
    if config.method == "contrast":
        return _choose_confirmed(config, corpus, seed)
    score_Z = reason_score(_sum_near_words(config, tsae, labeled, tokenize))
    ranked = np.argsort(-score_Z, kind="stable")
    latents = ranked[corpus.usable[ranked] & (score_Z[ranked] > 0)]
    latents = latents[: config.num_features]
    refusal = "" if len(latents) else "no latent fires near probe.features.words"
    return _Choice(latents, np.ones(len(latents)), score_Z, refusal=refusal)


def _choose_confirmed(
    config: FeatureSelectionConfig, corpus: _Corpus, seed: int
) -> _Choice:
    """Returns the latents whose effect the second half of the problems confirms."""
    nothing = np.array([], np.int64), np.array([])
    num_problems = len(corpus.within.outcome_scatter)
    score_Z = corpus.within.effect().value
    confirmation = confirm_effects(
        corpus.within, corpus.usable, num_candidates=config.num_features, seed=seed
    )
    if confirmation is None:
        refusal = (
            f"{num_problems} problems have both correct and incorrect completions, "
            "which is too few to choose features on one half and confirm them on the "
            "other; use more problems (probe.num_problems)"
        )
        return _Choice(*nothing, score_Z, refusal=refusal)
    kept_K = confirmation.confirmed(config.fdr)
    order = np.argsort(-np.abs(confirmation.shrunken[kept_K]), kind="stable")
    latents = confirmation.latents[kept_K][order]
    weights = confirmation.shrunken[kept_K][order]
    refusal = ""
    if not len(latents):
        refusal = (
            f"none of {len(confirmation.latents)} latents chosen on "
            f"{confirmation.num_prompts[0]} problems separates correct from incorrect "
            f"completions of one problem on the other {confirmation.num_prompts[1]} "
            f"(probe.features.fdr={config.fdr}); use more problems "
            "(probe.num_problems)"
        )
    return _Choice(latents, weights, confirmation.first, confirmation, refusal)


def _sum_near_words(
    config: FeatureSelectionConfig,
    tsae: TSAE,
    labeled: LabeledCorpus,
    tokenize: Callable[[str], Sequence[int]],
) -> ReasonSums:
    phrases = tokenize_words(config, tokenize)
    corpus, total = labeled.corpus, int(labeled.problem_index.max()) + 1

    def sums() -> Iterator[ReasonSums]:
        for block in corpus.blocks():
            kept_S = corpus.block_document_ids(block) >= 0
            yield reason_sums(
                tsae,
                jnp.asarray(block.x),
                mark_near_words(corpus.block_column("token_id", block), phrases),
                mask=block.mask & kept_S[:, None],
                prompts=labeled.problem_index[
                    np.maximum(corpus.block_document_ids(block), 0)
                ],
                num_prompts=total,
            )

    first, *rest = sums()
    return sum(rest, start=first)
