"""The three recipes. Sizes, data, lengths and layout stay those of the given config."""

import dataclasses

from sae_jax.config import Config


def rlvr(config: Config) -> Config:
    """Returns the recipe for a policy's activations, which is every default.

    Ours: activations of mean square 1, so that alpha means the same at every layer;
    cosine InfoNCE at temperature 0.1 with the previous token of the same document and
    role, in blocks of 512 pairs; partners by the tokens' cut; decay over the last 20 %.
    """
    default = Config()
    return _recipe(
        config,
        sae={name: vars(default.sae)[name] for name in _EXACT},
        loss=vars(default.loss),
        optimizer={"decay_share": default.optimizer.decay_share},
        pairs={"partner": "previous"},
    )


def paper(config: Config) -> Config:
    """Returns the recipe as published (arXiv 2511.05541): L_H + L_L + InfoNCE.

    Cosine similarity without temperature, both directions added, the previous token
    as the partner, activations as they are.
    """
    return _recipe(
        config,
        sae=_EXACT,
        loss={
            **_PUBLISHED,
            "alpha": 1.0,
            "similarity": "cosine",
            "directions": "sum",
            "group_weights": (1.0, 1.0),
        },
        optimizer={"decay_share": 0.0},
        pairs={"partner": "previous"},
    )


def reference(config: Config) -> Config:
    """Returns the recipe as released (AI4LIFE-GROUP/temporal-saes), number for number.

    Raw dot products, half the sum of both directions, weights .2 and .8 before the
    mean of two nested errors, a random earlier partner. Without its contrastive flag
    that code trains another loss: contrast="l1_cosine" with alpha=0.02 (0.1 of theirs
    times the first group's weight).
    """
    return _recipe(
        config,
        sae=_EXACT,
        loss={
            **_PUBLISHED,
            "alpha": 0.1,
            "similarity": "dot",
            "directions": "mean",
            "group_weights": (0.1, 0.4),
        },
        optimizer={"decay_share": 0.0},
        pairs={"partner": "random"},
    )


_EXACT = {
    "groups": (0.2, 0.8),
    "activation": "batch_topk",
    "count_tolerance": 0.0,
    "normalize": False,
}
_PUBLISHED = {
    "contrast": "infonce",
    "temperature": 1.0,
    "contrast_rows": 0,
    "partner_sparsity": "own",
    "squared_error": "sum",
    "auxk_coef": 1 / 32,
    "dead_after": 10_000_000,
}


def _recipe(config: Config, **sections: dict) -> Config:
    changed = {
        name: dataclasses.replace(vars(config)[name], **fields)
        for name, fields in sections.items()
    }
    return dataclasses.replace(config, **changed)
