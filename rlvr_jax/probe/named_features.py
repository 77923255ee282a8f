"""Latents and words named by a config: read, and checked before any work."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from job_jax.schema import ConfigError
from rlvr_jax.config import FeatureSelectionConfig
from rlvr_jax.tokenizer import UnknownWordError
from sae_jax.stats.features import Phrases, word_phrases


class WeightedLatents(NamedTuple):
    """Latents with their weights."""

    latents: Int[np.ndarray, " K"]
    weights: Float[np.ndarray, " K"]


def read_named_latents(config: FeatureSelectionConfig) -> WeightedLatents:
    """Returns the latents of a list, with equal weights, or of a weights file."""
    if config.method == "weights_file":
        return _read_weights_file(Path(config.weights_file))
    return WeightedLatents(np.array(config.latents), np.ones(len(config.latents)))


def _read_weights_file(path: Path) -> WeightedLatents:
    """Returns the latents and weights of a mechreward pack."""
    try:
        entries = json.loads(path.read_text())["features"]
        latents = np.array([int(entry["feature_id"]) for entry in entries])
        weights = np.array([float(entry["weight"]) for entry in entries])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"probe.features.weights_file={str(path)!r} is not a mechreward pack "
            f"({type(error).__name__}: {error}); it needs `features`, each with "
            "feature_id and weight"
        ) from error
    if not len(latents) or not np.isfinite(weights).all() or not weights.any():
        raise ConfigError(f"probe.features.weights_file={str(path)!r} holds no feature")
    return WeightedLatents(latents, weights)


def tokenize_words(
    config: FeatureSelectionConfig, tokenize: Callable[[str], Sequence[int]]
) -> Phrases:
    """Returns the tokens of ReasonScore's words. Raises ConfigError without any."""

    def tokenize_or_skip(text: str) -> Sequence[int]:
        try:
            return tokenize(text)
        except UnknownWordError:
            return ()

    try:
        return word_phrases(tokenize_or_skip, config.words)
    except ValueError as error:
        raise ConfigError(f"probe.features.words: {error}; name others") from error


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
        tokenize_words(config, tokenize)
    if config.method not in ("list", "weights_file"):
        return
    for latent in read_named_latents(config).latents.tolist():
        if not 0 <= latent < num_latents:
            raise ConfigError(
                f"probe.features: latent {latent} does not exist; the autoencoder has "
                f"latents 0..{num_latents - 1}"
            )
