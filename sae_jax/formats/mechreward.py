"""mechreward feature packs: latents to reward and to punish, as one JSON file.

Its loader reads `features`. Its published catalogs have the same information, with
evidence, as `helpful_features` and `harmful_features`. We write both.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sae_jax.stats.features import OutcomeMoments, cohens_d, cohens_d_interval

PACK_FILE = "reasoning_pack.json"


def write(
    directory: Path,
    sums: OutcomeMoments,
    *,
    num_latents: int,
    about: Mapping[str, str],
) -> None:
    """Writes the `num_latents` latents with the largest positive and negative effects.

    The effect is Cohen's d of right against wrong rollouts. A latent is included only
    if its 95 % interval over prompts excludes 0; the interval is not corrected for the
    number of latents. `about` holds name, model_name, release and sae_id. Raises
    ValueError if no latent qualifies.
    """
    effect = cohens_d(sums)
    interval = cohens_d_interval(sums)
    means = (
        sums.sums.sum(axis=0) / np.maximum(sums.num_rollouts.sum(axis=0), 1)[:, None]
    )
    clear = (interval.low > 0) | (interval.high < 0)
    order = np.argsort(-np.abs(effect), kind="stable")
    helpful = [z for z in order if clear[z] and effect[z] > 0][:num_latents]
    harmful = [z for z in order if clear[z] and effect[z] < 0][:num_latents]
    if not helpful and not harmful:
        wrong, right = sums.num_rollouts.sum(axis=0).astype(int)
        raise ValueError(
            f"no latent tells {right} right from {wrong} wrong rollouts: over "
            f"{len(sums.num_rollouts)} prompts, all intervals contain 0; give more data"
        )

    def entry(latent: int, weight: float) -> dict[str, Any]:
        return {
            "feature_id": int(latent),
            "weight": weight,
            "effect_size": float(effect[latent]),
            "effect_low": float(interval.low[latent]),
            "effect_high": float(interval.high[latent]),
            "mean_correct": float(means[1, latent]),
            "mean_wrong": float(means[0, latent]),
            "validated": False,
        }

    good = [entry(z, 1.0) for z in helpful]
    bad = [entry(z, -1.0) for z in harmful]
    pack = {
        **about,
        "version": "1.0.0",
        "description": "Latents whose mean activation differs between right and wrong "
        "rollouts: Cohen's d, 95 % intervals by bootstrap over prompts.",
        "features": [_feature_entry(e, about) for e in good + bad],
        "helpful_features": good,
        "harmful_features": bad,
        "metadata": {
            "prompts": len(sums.num_rollouts),
            "rollouts_wrong": int(sums.num_rollouts[:, 0].sum()),
            "rollouts_correct": int(sums.num_rollouts[:, 1].sum()),
        },
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / PACK_FILE).write_text(json.dumps(pack, indent=2) + "\n")


def _feature_entry(
    entry: Mapping[str, Any], about: Mapping[str, str]
) -> dict[str, Any]:
    """Returns a feature in the form that mechreward's loader needs."""
    side = "right" if entry["weight"] > 0 else "wrong"
    return {
        "feature_id": entry["feature_id"],
        "name": f"latent_{entry['feature_id']}",
        "description": f"higher in {side} rollouts, d = {entry['effect_size']:.3f}",
        "weight": entry["weight"],
        "release": about["release"],
        "sae_id": about["sae_id"],
        "activation_threshold": 0.0,
        "validated": False,
        "metadata": {"effect_size": entry["effect_size"]},
    }
