"""Everything that the page shows about an autoencoder, as one JSON object."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from sae_jax.dashboard.contexts import (
    Context,
    ContextCounts,
    LatentFirings,
    measure_firings,
    read_contexts,
)
from sae_jax.dashboard.sources import Unembedding, find_outcomes, number_problems
from sae_jax.data.corpus import Corpus
from sae_jax.data.vocabulary import show_whitespace, token_separator
from sae_jax.sae import TSAE
from sae_jax.stats.partners import PartnerCorrelation
from sae_jax.stats.within_prompts import within_prompts

_NUM_NEIGHBORS = 5
_NUM_LOGITS = 8  # tokens whose logits a latent raises most, and lowers most
_TAIL = 0.025  # on each side of a 95 % interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownFacts:
    """Optional facts besides the autoencoder and the activations.

    `documents` has a row for each document of the corpus; `movement` and `causes` hold
    rows by latent, and `partners` is keyed by the other autoencoder's name.
    """

    documents: Sequence[Mapping[str, Any]] = ()
    unembedding: Unembedding | None = None
    movement: Mapping[int, Sequence[Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict
    )
    causes: Mapping[int, Sequence[Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict
    )
    reward_weights: Mapping[int, float] = dataclasses.field(default_factory=dict)
    partners: Mapping[str, PartnerCorrelation] = dataclasses.field(default_factory=dict)


def describe_latents(
    tsae: TSAE,
    corpus: Corpus,
    latents: Int[np.ndarray, " R"],
    *,
    vocabulary: Sequence[str],
    counts: ContextCounts,
    known: KnownFacts,
) -> dict[str, Any]:
    """Returns {"vocabulary", "separator", "documents", "latents"} as plain JSON.

    Tokens and documents are indices into `vocabulary` and `documents`, which hold the
    shown texts; `separator` goes between tokens.
    """
    firings = measure_firings(
        tsae,
        corpus,
        latents,
        outcomes=find_outcomes(known.documents),
        problems=number_problems(known.documents),
    )
    contexts = read_contexts(tsae, corpus, firings, counts)
    effects = _outcome_effects(firings)
    neighbors = _nearest_latents(tsae, latents)
    logits = _written_tokens(tsae, latents, known.unembedding)
    tokens = _Indices()
    documents = _Indices()
    rows = [
        _describe_firing(firings, r)
        | {
            "high": z < tsae.num_high,
            "effect": effects[r],
            "neighbors": neighbors[r],
            "logits": [
                [[tokens.of(token), _round(value)] for token, value in side]
                for side in logits[r]
            ],
            "contexts": [_describe(c, tokens, documents) for c in contexts[z]],
        }
        | _describe_facts(known, z)
        for r, z in enumerate(latents.tolist())
    ]
    places = {number: at for at, number in enumerate(corpus.document_ids.tolist())}
    return {
        "vocabulary": [
            show_whitespace(vocabulary[token])
            if token < len(vocabulary)
            else f"<{token}>"
            for token in tokens.values
        ],
        "separator": token_separator(vocabulary),
        "documents": [
            {"document": n, **known.documents[places[n]]}
            if known.documents
            else {"document": n}
            for n in documents.values
        ],
        "latents": rows,
    }


def _describe_firing(firings: LatentFirings, r: int) -> dict[str, Any]:
    return {
        "id": int(firings.latents[r]),
        "rate": _round(firings.rate[r]),
        "mean": _round(firings.mean[r]),
        "max": _round(firings.highest[:, r].max()),
    }


def _describe_facts(known: KnownFacts, latent: int) -> dict[str, Any]:
    return {
        "partners": {
            name: [
                int(other.match.nearest[latent]),
                _round(other.match.cosine[latent]),
                _round(other.correlation[latent]),
            ]
            for name, other in known.partners.items()
        },
        "reward_weight": known.reward_weights.get(latent),
        "movement": known.movement.get(latent, ()),
        "causes": known.causes.get(latent, ()),
    }


class _Indices:
    """Numbers the distinct values it is given, in order of first use."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}

    def of(self, value: int) -> int:
        """Returns the value's number."""
        return self._place.setdefault(int(value), len(self._place))

    @property
    def values(self) -> list[int]:
        """Returns all values, in the order of their numbers."""
        return [*self._place]


def _describe(
    context: Context, tokens: _Indices, documents: _Indices
) -> dict[str, Any]:
    return {
        "group": context.group,
        "document": documents.of(context.document),
        "peak": context.peak,
        "tokens": [tokens.of(token) for token in context.token_ids],
        "roles": context.roles.tolist(),
        "values": [_round(value) for value in context.values],
    }


def _outcome_effects(firings: LatentFirings) -> list[list[float] | None]:
    """Returns each latent's effect within problems, and the ends of its interval.

    The interval is Student's t over the N problems that have both right and wrong
    completions, cut to -1..1. All is None without verdicts, or if N < 2.
    """
    nothing: list[list[float] | None] = [None] * len(firings.latents)
    if firings.outcomes is None:
        return nothing
    within = within_prompts(firings.outcomes)
    num_problems = len(within.outcome_scatter)
    if num_problems < 2:
        return nothing
    value_R, error_R = within.effect()
    half_R = -stdtrit(num_problems - 1, _TAIL) * error_R
    low_R, high_R = np.clip([value_R - half_R, value_R + half_R], -1, 1)
    return [
        [*map(_round, interval)]
        for interval in zip(value_R, low_R, high_R, strict=True)
    ]


def _nearest_latents(
    tsae: TSAE, latents: Int[np.ndarray, " R"]
) -> list[list[list[float]]]:
    """Returns each latent's nearest latents by the cosine of decoder rows."""
    rows_ZD = np.asarray(tsae.decoder, np.float32)
    norm_Z1 = np.linalg.norm(rows_ZD, axis=1, keepdims=True)
    unit_ZD = rows_ZD / np.where(norm_Z1 > 0, norm_Z1, 1)
    nearest = []
    for z in latents.tolist():
        cosine_Z = unit_ZD @ unit_ZD[z]
        order = [i for i in np.argsort(-cosine_Z, kind="stable").tolist() if i != z]
        nearest.append([[i, _round(cosine_Z[i])] for i in order[:_NUM_NEIGHBORS]])
    return nearest


def _written_tokens(
    tsae: TSAE, latents: Int[np.ndarray, " R"], unembedding: Unembedding | None
) -> list[list[list[tuple[int, float]]]]:
    """Returns the tokens whose logits each latent raises most and lowers most."""
    if unembedding is None:
        return [[[], []]] * len(latents)
    found = []
    for z in latents.tolist():
        row_D: Float[np.ndarray, " D"] = np.asarray(tsae.decoder[z]) * unembedding.scale
        logit_V = unembedding.head @ row_D
        order = np.argsort(-logit_V, kind="stable")
        sides = order[:_NUM_LOGITS], order[: -_NUM_LOGITS - 1 : -1]
        found.append([[(int(v), float(logit_V[v])) for v in side] for side in sides])
    return found


def _round(value: Any) -> float:
    """Returns the value rounded to four significant digits."""
    return float(f"{float(value):.4g}")
