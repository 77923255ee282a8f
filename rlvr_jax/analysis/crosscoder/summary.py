"""The results of a run's crosscoder and of its controls, as one JSON record."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from rlvr_jax.analysis.crosscoder.fit import Fitted
from rlvr_jax.types import BANDS
from sae_jax.stats.crosscoder import (
    decoder_blocks,
    last_share,
    latent_scaling,
)
from sae_jax.stats.quality import match_decoders

CROSSCODER_FILE = Path("crosscoder") / "crosscoder.json"
RL, OTHER_SEED = "RL", "another seed"
HALVES = ("one half of the problems", "the other half")
BASE, RANDOM = "base against base with noise", "random reward"

_SAME_LATENT = 0.7  # smallest cosine of decoder rows that count as the same latent
_QUANTILES = (0.025, 0.5, 0.975)
_SHOWN = 10  # latents shown for each direction: grown and shrunk


def describe_fit(fitted: Fitted) -> dict[str, Any]:
    """Returns the counts of a crosscoder's latents, and how well it reconstructs."""
    changes, sums = fitted.changes, fitted.sums
    shares = {
        "norm_share": changes.norm_share[changes.alive],
        "scaling_share": changes.scaling_share.value[changes.alive],
    }
    return {
        "alive": changes.alive.sum(),
        "counts": changes.count_kinds(changes.alive),
        "confirmed": changes.count_kinds(changes.confirmed),
        **{
            name: np.quantile(share, _QUANTILES) if len(share) else []
            for name, share in shares.items()
        },
        "fve": sums.explained(),
        "tokens": sums.tokens.sum(),
        "problems": len(sums.problems),
    }


def count_replicated(found: Fitted, other: Fitted) -> dict[str, int]:
    """Returns how many confirmed changes of one crosscoder another one finds too.

    The two latents must be each other's nearest, with a cosine of at least 0.7. The
    other latent must also be confirmed, and changed in the same direction.
    """
    replicated = _replicated(found, other)
    return {
        "replicated": int(replicated.sum()),
        "confirmed": int(found.changes.confirmed.sum()),
    }


def describe_latents(
    fitted: Fitted,
    checkpoints: Sequence[str],
    *,
    bands: Mapping[int, str],
    others: Mapping[str, Fitted],
) -> list[dict[str, Any]]:
    """Returns the latents whose share is farthest from half, and facts about each.

    Confirmed latents come first. `bands` maps a problem's number to its band.
    """
    changes, sums = fitted.changes, fitted.sums
    decoder_ZKD = decoder_blocks(fitted.tsae, len(checkpoints))
    norm_ZK = np.linalg.norm(decoder_ZKD, axis=2)
    scaling_KZ = latent_scaling(sums, decoder_ZKD)[0]
    replicated = {name: _replicated(fitted, other) for name, other in others.items()}
    by_band = {}
    for band in BANDS:
        chosen = np.array([n for n, named in bands.items() if named == band], int)
        if np.isin(sums.problems, chosen).any():
            part = latent_scaling(sums.select(chosen), decoder_ZKD)
            by_band[band] = last_share(part[0])
    return [
        {
            "latent": z,
            "kind": changes.kind[z],
            "confirmed": changes.confirmed[z],
            "scaling_share": [end[z] for end in changes.scaling_share],
            "scaling_share_by_band": {
                band: share[z] for band, share in by_band.items()
            },
            "norm_share": changes.norm_share[z],
            "cosine": changes.cosine[z],
            "norm": dict(zip(checkpoints, norm_ZK[z], strict=True)),
            "scaling": dict(zip(checkpoints, scaling_KZ[:, z], strict=True)),
            "firing_rate": sums.fired[:, z].sum() / sums.tokens.sum(),
            "replicated": {name: found[z] for name, found in replicated.items()},
        }
        for z in map(int, _farthest(fitted))
    ]


def _farthest(fitted: Fitted) -> Int[np.ndarray, " R"]:
    """Returns the most grown latents, then the most shrunk."""
    changes = fitted.changes
    alive = np.flatnonzero(changes.alive)
    share = changes.scaling_share.value
    from_half = np.abs(share[alive] - 0.5) + changes.confirmed[alive]
    order = alive[np.argsort(-from_half, kind="stable")]
    grown = share[order] > 0.5
    return np.concatenate([order[grown][:_SHOWN], order[~grown][:_SHOWN]])


def _replicated(found: Fitted, other: Fitted) -> np.ndarray:
    """Returns which confirmed changes another crosscoder finds too, [Z]."""
    match = match_decoders(found.tsae.decoder, other.tsae.decoder)
    ours, theirs = found.changes, other.changes
    grown, partner_grown = (each.scaling_share.value > 0.5 for each in (ours, theirs))
    same_way = grown == partner_grown[match.nearest]
    same = match.mutual & (match.cosine >= _SAME_LATENT)
    return ours.confirmed & same & same_way & theirs.confirmed[match.nearest]
