"""Which latents of a dictionary are reasoning features: chosen once, before RL.

From the policy's own completions before RL, on disk as activations with a verdict each.
No feature is chosen that other seeds' dictionaries do not find again.
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

from job_jax.schema import ConfigError
from rlvr_jax.config import FeatureSetConfig
from sae_jax.corpus import Corpus
from sae_jax.feature_statistics import UNJUDGED, FeatureStatistics, collect_sequences
from sae_jax.features import (
    Phrases,
    ReasonSums,
    contrast,
    contrast_sums,
    near_words,
    reason_score,
    reason_sums,
    word_phrases,
)
from sae_jax.sae import TSAE

# Latents that fire on fewer tokens than this were as good as never seen.
_FEWEST_FIRINGS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The reasoning features of a run. Written by `choose`, read by `probes`.

    `weights` add up to 1 in size; `sigma` is each feature's root mean square over
    tokens, `score` what the method gave it, `stability` its cosine with other seeds'
    latents (None: no other seed). `direction` and `centre` are those of the arm that
    reads one raw direction; its `latents` are the ones it stands for. `dead` latents
    were asked for and hardly fire; `unstable` ones were left out.
    """

    latents: tuple[int, ...]
    weights: tuple[float, ...]
    sigma: tuple[float, ...]
    score: tuple[float, ...]
    stability: tuple[float, ...] | None
    method: str
    arm: str
    layer: int
    dead: tuple[int, ...]
    unstable: int
    completions: int
    direction: tuple[float, ...] = ()
    centre: tuple[float, ...] = ()

    def save(self, path: Path) -> None:
        """Writes the selection as JSON, in one step."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns what `save` wrote."""
        values: dict[str, Any] = json.loads(path.read_text())
        for name, value in values.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completions:
    """The policy's completions before RL, with their activations.

    Document i of `corpus` is completion i, of problem `problems[i]`; `outcomes` are 0
    wrong, 1 right, 2 unjudged.
    """

    corpus: Corpus
    problems: Int[np.ndarray, " S"]
    outcomes: Int[np.ndarray, " S"]

    def statistics(self, tsae: TSAE) -> FeatureStatistics:
        """Returns one row per completion."""
        parts = []
        for block in self.corpus.blocks():
            rows_S = self.corpus.rows(block)
            outcome_S = np.where(rows_S >= 0, self.outcomes[rows_S], UNJUDGED)
            found = jax.device_get(
                _statistics(tsae, block.x, block.counted, outcome_S.astype(np.int32))
            )
            parts.append(jax.tree.map(lambda a, r=rows_S: a[r >= 0], found))
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    def directions(self) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        """Returns mean right less mean wrong activation, and the mean of all."""
        sums, counts = np.zeros((3, self.corpus.shards.width)), np.zeros(3)
        for block in self.corpus.blocks():
            rows_S = self.corpus.rows(block)
            x_SD = np.where(block.counted[:, :, None], block.x, 0.0).sum(axis=1)
            outcome_S = np.where(rows_S >= 0, self.outcomes[rows_S], UNJUDGED)
            np.add.at(sums, outcome_S, x_SD)
            np.add.at(counts, outcome_S, block.counted.sum(axis=1))
        means = sums / np.maximum(counts, 1.0)[:, None]
        return means[1] - means[0], sums.sum(axis=0) / max(counts.sum(), 1.0)


@jax.jit
def _statistics(
    tsae: TSAE,
    x: Float[Array, "S T D"],
    counted: Bool[Array, "S T"],
    outcome: Int[Array, " S"],
) -> FeatureStatistics:
    x = jnp.where(counted[:, :, None], x, 0.0)
    return collect_sequences(tsae.encode(x), counted=counted, outcome=outcome)


class _Ranked(NamedTuple):
    """Latents in the order of choice, with their weights and scores."""

    latents: Int[np.ndarray, " K"]
    weights: Float[np.ndarray, " K"]


def choose(
    config: FeatureSetConfig,
    tsae: TSAE,
    completions: Completions,
    *,
    layer: int,
    stability: Float[np.ndarray, " Z"] | None,
    tokenize: Callable[[str], Sequence[int]],
    seed: int,
) -> Selection:
    """Returns the reasoning features. ConfigError where the config finds none.

    A latent named by a list or a pack is kept even if dead or unstable, and told of; a
    method that ranks leaves such latents out.
    """
    found = completions.statistics(tsae)
    total = jax.tree.map(lambda a: a.sum(axis=0), found)
    score_Z, ranked = _ranked(config, tsae, completions, found, tokenize=tokenize)
    dead_Z = np.asarray(total.nonzero) < _FEWEST_FIRINGS
    stable_Z = np.ones(tsae.latents, bool)
    if stability is not None:
        stable_Z = stability >= config.min_stability
    unstable = 0
    if config.method in ("contrast", "reason_score"):
        alive = ranked.latents[~dead_Z[ranked.latents]]
        usable = alive[stable_Z[alive]]
        unstable = len(alive) - len(usable)
        if not len(usable):
            raise ConfigError(
                f"probe.features: none of {len(alive)} latents that fire has a "
                f"stability of probe.features.min_stability={config.min_stability} or "
                "more; train the dictionary longer, or lower it"
            )
        chosen = usable[: config.count]
        weights = np.sign(score_Z[chosen])
    else:
        chosen, weights = ranked
    if config.arm == "random":
        chosen = _matched(chosen, np.asarray(total.nonzero), dead_Z, seed=seed)
    rms_Z = np.sqrt(np.asarray(total.sum_squares) / max(int(total.tokens), 1))
    selection = Selection(
        latents=tuple(int(z) for z in chosen),
        weights=tuple(float(w) for w in weights / np.abs(weights).sum()),
        sigma=tuple(float(rms) if rms > 0 else 1.0 for rms in rms_Z[chosen]),
        score=tuple(float(score_Z[z]) for z in chosen),
        stability=None
        if stability is None
        else tuple(float(stability[z]) for z in chosen),
        method=config.method,
        arm=config.arm,
        layer=layer,
        dead=tuple(int(z) for z in chosen if dead_Z[z]),
        unstable=unstable,
        completions=len(completions.outcomes),
    )
    if config.arm == "direction":
        return _as_direction(selection, completions)
    return selection


def _ranked(
    config: FeatureSetConfig,
    tsae: TSAE,
    completions: Completions,
    found: FeatureStatistics,
    *,
    tokenize: Callable[[str], Sequence[int]],
) -> tuple[Float[np.ndarray, " Z"], _Ranked]:
    """Returns every latent's score, and the latents from the best on."""
    means_SZ = np.asarray(found.sum) / np.maximum(found.tokens, 1)[:, None]
    effect_Z = contrast(
        contrast_sums(
            means_SZ,
            right=completions.outcomes == 1,
            judged=completions.outcomes < UNJUDGED,
            prompts=completions.problems,
            total=int(completions.problems.max()) + 1,
        )
    )
    if config.method in ("list", "pack"):
        check_named(config, tsae.latents, tokenize=tokenize)
        return effect_Z, _named(config)
    score_Z = effect_Z
    if config.method == "reason_score":
        score_Z = reason_score(_near_words(config, tsae, completions, tokenize))
    else:
        right, wrong = ((completions.outcomes == o).sum() for o in (1, 0))
        if min(right, wrong) < 2:
            raise ConfigError(
                f"probe.features.method=contrast has {right} right and {wrong} wrong "
                "completions to tell apart; ask more problems (probe.problems), or "
                "choose another method"
            )
    size_Z = score_Z if config.method == "reason_score" else np.abs(score_Z)
    order = np.argsort(-size_Z, kind="stable")
    order = order[size_Z[order] > 0]
    return score_Z, _Ranked(order, np.sign(score_Z[order]))


def _near_words(
    config: FeatureSetConfig,
    tsae: TSAE,
    completions: Completions,
    tokenize: Callable[[str], Sequence[int]],
) -> ReasonSums:
    phrases = _phrases(config, tokenize)
    corpus, total = completions.corpus, int(completions.problems.max()) + 1

    def sums() -> Iterator[ReasonSums]:
        for block in corpus.blocks():
            kept_S = corpus.rows(block) >= 0
            yield reason_sums(
                tsae,
                jnp.asarray(block.x),
                near_words(corpus.values("token_id", block), phrases),
                counted=block.counted & kept_S[:, None],
                prompts=completions.problems[np.maximum(corpus.rows(block), 0)],
                total=total,
            )

    first, *rest = sums()
    return sum(rest, start=first)


def _phrases(
    config: FeatureSetConfig, tokenize: Callable[[str], Sequence[int]]
) -> Phrases:
    def known(text: str) -> Sequence[int]:
        try:
            return tokenize(text)
        except KeyError:  # a closed vocabulary
            return ()

    try:
        return word_phrases(known, config.words)
    except ValueError as error:
        raise ConfigError(f"probe.features.words: {error}; name others") from error


def _named(config: FeatureSetConfig) -> _Ranked:
    """Returns the latents of a list, all alike, or those of a pack."""
    if config.method == "pack":
        return _read_pack(Path(config.pack))
    return _Ranked(np.array(config.latents), np.ones(len(config.latents)))


def _read_pack(path: Path) -> _Ranked:
    """Returns the latents and weights of a mechreward pack."""
    try:
        entries = json.loads(path.read_text())["features"]
        latents = np.array([int(entry["feature_id"]) for entry in entries])
        weights = np.array([float(entry["weight"]) for entry in entries])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"probe.features.pack={str(path)!r} is no mechreward pack "
            f"({type(error).__name__}: {error}); it holds `features`, each with "
            "feature_id and weight"
        ) from error
    if not len(latents) or not np.isfinite(weights).all() or not weights.any():
        raise ConfigError(f"probe.features.pack={str(path)!r} holds no feature")
    return _Ranked(latents, weights)


def check_named(
    config: FeatureSetConfig, total: int, *, tokenize: Callable[[str], Sequence[int]]
) -> None:
    """Raises ConfigError where a config names a latent or a word that is not there.

    Latents, of `total`, by a list or a pack; words that the tokenizer does not know.
    """
    if config.method == "reason_score":
        _phrases(config, tokenize)
    if config.method not in ("list", "pack"):
        return
    for latent in _named(config).latents.tolist():
        if not 0 <= latent < total:
            raise ConfigError(
                f"probe.features: latent {latent} of a dictionary with latents 0.."
                f"{total - 1}"
            )


def _matched(
    chosen: Int[np.ndarray, " R"],
    firings_Z: Int[np.ndarray, " Z"],
    dead_Z: Bool[np.ndarray, " Z"],
    *,
    seed: int,
) -> Int[np.ndarray, " R"]:
    """Returns for each latent another one, drawn from the 10 nearest in firing rate."""
    rng = np.random.default_rng(seed)
    free_Z = ~dead_Z
    free_Z[chosen] = False
    picked = []
    for latent in chosen:
        candidates = np.flatnonzero(free_Z)
        if not len(candidates):
            raise ConfigError(
                f"probe.features.arm=random: no latents left to match {len(chosen)} "
                "features with; lower probe.features.count"
            )
        ratio = np.log(firings_Z[candidates] / max(int(firings_Z[latent]), 1))
        nearest = candidates[np.argsort(np.abs(ratio), kind="stable")[:10]]
        picked.append(int(rng.choice(nearest)))
        free_Z[picked[-1]] = False
    return np.array(picked)


def _as_direction(selection: Selection, completions: Completions) -> Selection:
    """Returns the selection that reads one raw direction in place of its latents."""
    direction_D, centre_D = completions.directions()
    length = float(np.linalg.norm(direction_D))
    if not math.isfinite(length) or length == 0.0:
        raise ConfigError(
            "probe.features.arm=direction: right and wrong completions have one mean "
            "activation"
        )
    direction_D = direction_D / length
    square = tokens = 0.0
    for block in completions.corpus.blocks():
        along_ST = (np.where(block.counted[:, :, None], block.x, 0) - centre_D) @ (
            direction_D
        )
        square += float((along_ST[block.counted] ** 2).sum())
        tokens += int(block.counted.sum())
    return dataclasses.replace(
        selection,
        weights=(1.0,),
        sigma=(math.sqrt(square / max(tokens, 1.0)) or 1.0,),
        direction=tuple(direction_D.tolist()),
        centre=tuple(centre_D.tolist()),
    )


def summary(selection: Selection) -> dict[str, Any]:
    """Returns what summary.json says of the features."""
    names = ("latents", "weights", "score", "stability", "method", "arm", "dead")
    return {name: vars(selection)[name] for name in (*names, "unstable")}
