"""Controls of reasoning features: what stands in their place and should do no good."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.schema import ConfigError
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.probe.selection import FeatureSelection

_NUM_NEAREST = 16  # of which a control is drawn


def draw_matched_latents(
    properties: Float[np.ndarray, "Z M"],
    targets: Int[np.ndarray, " R"],
    *,
    usable: Bool[np.ndarray, " Z"],
    seed: int,
) -> Int[np.ndarray, " R"]:
    """Returns one random other latent for each target, like it in all M properties.

    Drawn from the 16 nearest usable ones; a property is measured in standard
    deviations over the usable latents. No target and no latent comes twice. Raises
    ConfigError where too few are left.

    >>> rates = np.array([[0.9], [0.8], [0.1]])
    >>> draw_matched_latents(
    ...     rates, np.array([0]), usable=np.array([True, True, False]), seed=0
    ... ).tolist()
    [1]
    """
    free = np.flatnonzero(usable)
    free = free[~np.isin(free, targets)]
    if len(free) < len(targets):
        raise ConfigError(
            f"probe.features.control=random_latents: {len(free)} other latents fire "
            f"and are stable: too few to match {len(targets)}; lower "
            "probe.features.num_features"
        )
    spread_M = properties[free].std(axis=0)
    scaled_ZM = properties / np.where(spread_M > 0, spread_M, 1.0)
    random, drawn = np.random.default_rng(seed), []
    for target in targets:
        distance = np.linalg.norm(scaled_ZM[free] - scaled_ZM[target], axis=1)
        nearest = free[np.argsort(distance, kind="stable")[:_NUM_NEAREST]]
        drawn.append(int(random.choice(nearest)))
        free = free[free != drawn[-1]]
    return np.array(drawn)


def read_one_direction(
    selection: FeatureSelection, labeled: LabeledCorpus
) -> FeatureSelection:
    """Returns a selection of one feature, a raw direction, in place of the latents."""
    direction_D, center_D = labeled.outcome_direction()
    direction_D = direction_D / np.linalg.norm(direction_D)
    return dataclasses.replace(
        selection,
        weights=(1.0,),
        rms=(labeled.projection_rms(direction_D, center_D) or 1.0,),
        direction=tuple(direction_D.tolist()),
        center=tuple(center_D.tolist()),
    )
