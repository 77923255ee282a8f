"""Chooses which latents of an autoencoder are reasoning features, once, before RL.

The choice reads the policy's own completions before RL: activations on disk, each with
a verdict. A method that ranks latents skips those that autoencoders of other seeds do
not have.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from job_jax.files import write_atomically
from job_jax.schema import ConfigError
from rlvr_jax.config import FeatureSelectionConfig
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.types import Outcome
from sae_jax.edits import rate_matched_latents
from sae_jax.sae import TSAE
from sae_jax.stats.feature_statistics import FeatureStatistics, sequence_statistics
from sae_jax.stats.features import (
    Phrases,
    ReasonSums,
    cohens_d,
    mark_near_words,
    outcome_moments,
    reason_score,
    reason_sums,
    word_phrases,
)

# Latents that fire on fewer tokens than this are called dead.
_MIN_FIRINGS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSelection:
    """The reasoning features of a run. Written by `select_features` to selection.json.

    The sizes of `weights` add up to 1; `rms` is each feature's root mean square over
    tokens, `scores` what the method gave it, `seed_cosine` the cosine of its decoder
    row with those of other seeds (None: there was no other seed). With the control
    `direction`, one feature is read, along `direction` from `center`; `latents` are
    those that it stands in for. `dead` lists named latents that hardly fire;
    `num_unstable` counts latents that were skipped for a low seed cosine.
    """

    latents: tuple[int, ...]
    weights: tuple[float, ...]
    rms: tuple[float, ...]
    scores: tuple[float, ...]
    seed_cosine: tuple[float, ...] | None
    method: str
    control: str
    layer: int
    dead: tuple[int, ...]
    num_unstable: int
    num_completions: int
    direction: tuple[float, ...] = ()
    center: tuple[float, ...] = ()

    def save(self, path: Path) -> None:
        """Writes the selection as JSON, in one step."""
        with write_atomically(path) as partial:
            partial.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns what `save` wrote."""
        values: dict[str, Any] = json.loads(path.read_text())
        for name, value in values.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)


def completion_statistics(labeled: LabeledCorpus, tsae: TSAE) -> FeatureStatistics:
    """Returns sums of every latent over each completion, a row per completion."""
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


class _RankedLatents(NamedTuple):
    """Latents in the order of choice, with their weights and scores."""

    latents: Int[np.ndarray, " K"]
    weights: Float[np.ndarray, " K"]


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
    """Returns the reasoning features. Raises ConfigError if the config finds none.

    A latent that a list or a weights file names is kept even if it is dead or
    unstable; a method that ranks latents skips such ones.
    """
    statistics = completion_statistics(labeled, tsae)
    total = jax.tree.map(lambda a: a.sum(axis=0), statistics)
    score_Z, ranked = _rank_latents(
        config, tsae, labeled, statistics, tokenize=tokenize
    )
    dead_Z = np.asarray(total.nonzero) < _MIN_FIRINGS
    num_unstable = 0
    if config.method in ("contrast", "reason_score"):
        latents, num_unstable = _skip_dead_and_unstable(
            config, ranked.latents, dead_Z=dead_Z, seed_cosine=seed_cosine
        )
        weights = np.sign(score_Z[latents])
    else:
        latents, weights = ranked
    if config.control == "random_latents":
        rate_Z = np.where(dead_Z, 0, np.asarray(total.nonzero)) / max(total.tokens, 1)
        latents = _draw_random_latents(rate_Z, latents, seed=seed)
    rms_Z = np.sqrt(np.asarray(total.sum_squares) / max(int(total.tokens), 1))
    selection = FeatureSelection(
        latents=tuple(int(z) for z in latents),
        weights=tuple(float(w) for w in weights / np.abs(weights).sum()),
        rms=tuple(float(rms) if rms > 0 else 1.0 for rms in rms_Z[latents]),
        scores=tuple(float(score_Z[z]) for z in latents),
        seed_cosine=(
            None
            if seed_cosine is None
            else tuple(float(seed_cosine[z]) for z in latents)
        ),
        method=config.method,
        control=config.control,
        layer=layer,
        dead=tuple(int(z) for z in latents if dead_Z[z]),
        num_unstable=num_unstable,
        num_completions=len(labeled.outcomes),
    )
    if config.control == "direction":
        return _read_one_direction(selection, labeled)
    return selection


def _skip_dead_and_unstable(
    config: FeatureSelectionConfig,
    ranked: Int[np.ndarray, " K"],
    *,
    dead_Z: Bool[np.ndarray, " Z"],
    seed_cosine: Float[np.ndarray, " Z"] | None,
) -> tuple[Int[np.ndarray, " R"], int]:
    """Returns the best of the latents that fire and are stable; how many are not."""
    alive = ranked[~dead_Z[ranked]]
    usable = alive
    if seed_cosine is not None:
        usable = alive[seed_cosine[alive] >= config.min_seed_cosine]
    if not len(usable):
        raise ConfigError(
            f"probe.features: none of {len(alive)} latents that fire has a seed cosine "
            f"of min_seed_cosine={config.min_seed_cosine} or more; train the "
            "autoencoder longer, or lower probe.features.min_seed_cosine"
        )
    return usable[: config.num_features], len(alive) - len(usable)


def _draw_random_latents(
    rate_Z: Float[np.ndarray, " Z"], targets: Int[np.ndarray, " R"], *, seed: int
) -> Int[np.ndarray, " R"]:
    """Returns as many other latents, each near its target in firing rate."""
    try:
        (drawn,) = rate_matched_latents(
            rate_Z, [int(z) for z in targets], num_draws=1, seed=seed
        )
    except ConfigError as error:
        raise ConfigError(
            f"probe.features.control=random_latents: {error}; lower "
            "probe.features.num_features"
        ) from error
    return np.array(drawn)


def _rank_latents(
    config: FeatureSelectionConfig,
    tsae: TSAE,
    labeled: LabeledCorpus,
    statistics: FeatureStatistics,
    *,
    tokenize: Callable[[str], Sequence[int]],
) -> tuple[Float[np.ndarray, " Z"], _RankedLatents]:
    """Returns every latent's score, and the latents in descending order of score."""
    means_SZ = np.asarray(statistics.sum) / np.maximum(statistics.tokens, 1)[:, None]
    effect_Z = cohens_d(
        outcome_moments(
            means_SZ,
            correct=labeled.outcomes == Outcome.correct,
            verified=labeled.outcomes != Outcome.unverified,
            prompts=labeled.problem_index,
            num_prompts=int(labeled.problem_index.max()) + 1,
        )
    )
    if config.method in ("list", "weights_file"):
        check_named_features(config, tsae.latents, tokenize=tokenize)
        return effect_Z, _named_latents(config)
    score_Z = effect_Z
    if config.method == "reason_score":
        score_Z = reason_score(_sum_near_words(config, tsae, labeled, tokenize))
    else:
        correct, incorrect = (
            (labeled.outcomes == outcome).sum()
            for outcome in (Outcome.correct, Outcome.incorrect)
        )
        if min(correct, incorrect) < 2:
            raise ConfigError(
                f"probe.features.method=contrast has {correct} correct and {incorrect} "
                "incorrect completions to tell apart; ask more problems "
                "(probe.num_problems), or choose another method"
            )
    size_Z = score_Z if config.method == "reason_score" else np.abs(score_Z)
    order = np.argsort(-size_Z, kind="stable")
    order = order[size_Z[order] > 0]
    return score_Z, _RankedLatents(order, np.sign(score_Z[order]))


def _sum_near_words(
    config: FeatureSelectionConfig,
    tsae: TSAE,
    labeled: LabeledCorpus,
    tokenize: Callable[[str], Sequence[int]],
) -> ReasonSums:
    phrases = _tokenize_words(config, tokenize)
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


def _tokenize_words(
    config: FeatureSelectionConfig, tokenize: Callable[[str], Sequence[int]]
) -> Phrases:
    def tokenize_or_skip(text: str) -> Sequence[int]:
        try:
            return tokenize(text)
        except KeyError:  # a closed vocabulary
            return ()

    try:
        return word_phrases(tokenize_or_skip, config.words)
    except ValueError as error:
        raise ConfigError(f"probe.features.words: {error}; name others") from error


def _named_latents(config: FeatureSelectionConfig) -> _RankedLatents:
    """Returns the latents of a list, of equal weight, or those of a weights file."""
    if config.method == "weights_file":
        return _read_weights_file(Path(config.weights_file))
    return _RankedLatents(np.array(config.latents), np.ones(len(config.latents)))


def _read_weights_file(path: Path) -> _RankedLatents:
    """Returns the latents and weights of a mechreward pack."""
    try:
        entries = json.loads(path.read_text())["features"]
        latents = np.array([int(entry["feature_id"]) for entry in entries])
        weights = np.array([float(entry["weight"]) for entry in entries])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"probe.features.weights_file={str(path)!r} is no mechreward pack "
            f"({type(error).__name__}: {error}); it holds `features`, each with "
            "feature_id and weight"
        ) from error
    if not len(latents) or not np.isfinite(weights).all() or not weights.any():
        raise ConfigError(f"probe.features.weights_file={str(path)!r} holds no feature")
    return _RankedLatents(latents, weights)


def check_named_features(
    config: FeatureSelectionConfig,
    num_latents: int,
    *,
    tokenize: Callable[[str], Sequence[int]],
) -> None:
    """Raises ConfigError if a config names a latent or a word that does not exist.

    Latents named by a list or a weights file must be below `num_latents`; the tokenizer
    must have tokens for the words of a ReasonScore.
    """
    if config.method == "reason_score":
        _tokenize_words(config, tokenize)
    if config.method not in ("list", "weights_file"):
        return
    for latent in _named_latents(config).latents.tolist():
        if not 0 <= latent < num_latents:
            raise ConfigError(
                f"probe.features: latent {latent} of an autoencoder with latents 0.."
                f"{num_latents - 1}"
            )


def _read_one_direction(
    selection: FeatureSelection, labeled: LabeledCorpus
) -> FeatureSelection:
    """Returns a selection of one feature, a raw direction, in place of the latents."""
    direction_D, center_D = labeled.outcome_direction()
    length = float(np.linalg.norm(direction_D))
    if not math.isfinite(length) or length == 0.0:
        raise ConfigError(
            "probe.features.control=direction: correct and incorrect completions have "
            "the same mean activation"
        )
    direction_D = direction_D / length
    return dataclasses.replace(
        selection,
        weights=(1.0,),
        rms=(labeled.projection_rms(direction_D, center_D) or 1.0,),
        direction=tuple(direction_D.tolist()),
        center=tuple(center_D.tolist()),
    )


def selection_summary(selection: FeatureSelection) -> dict[str, Any]:
    """Returns what stands in summary.json of the features."""
    names = ("latents", "weights", "scores", "seed_cosine", "method", "control", "dead")
    return {name: vars(selection)[name] for name in (*names, "num_unstable")}
