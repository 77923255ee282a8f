"""Controls of reasoning features: replacements that should have no effect."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.schema import ConfigError
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.probe.selection import FeatureSelection

_NUM_NEAREST = 16  # candidates from which a control is drawn


def draw_matched_latents(
    properties: Float[np.ndarray, "Z M"],
    targets: Int[np.ndarray, " R"],
    *,
    usable: Bool[np.ndarray, " Z"],
    seed: int,
) -> Int[np.ndarray, " R"]:
    """Returns one random other latent for each target, similar in all M properties.

    Each is drawn from the 16 nearest usable ones; distances are in standard deviations
    of each property over the usable latents. No target is drawn, and no latent is drawn
    twice. Raises ConfigError if too few are left.

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
    """Returns a selection with one raw direction as its feature, instead of latents."""
    direction_D, center_D = labeled.outcome_direction()
    direction_D = direction_D / np.linalg.norm(direction_D)
    return dataclasses.replace(
        selection,
        weights=(1.0,),
        rms=(labeled.projection_rms(direction_D, center_D) or 1.0,),
        directions=(tuple(direction_D.tolist()),),
        center=tuple(center_D.tolist()),
    )


def read_random_directions(
    selection: FeatureSelection,
    labeled: LabeledCorpus,
    *,
    rates: Float[np.ndarray, " R"],
    seed: int,
) -> FeatureSelection:
    """Returns a selection of R random directions instead of the R latents.

    They are uniform over the sphere. Direction k fires above a bound, on the fraction
    `rates[k]` of all tokens, as its latent does. Its weight has the size of the
    latent's weight and the sign of its own effect.
    """
    random, R = np.random.default_rng(seed), len(rates)
    directions_RD = random.normal(size=(R, labeled.width))
    directions_RD /= np.linalg.norm(directions_RD, axis=1, keepdims=True)
    projection_NR, completion_N = labeled.project_tokens(directions_RD)
    bound_R = np.array(
        [np.quantile(projection_NR[:, k], 1.0 - rate) for k, rate in enumerate(rates)]
    )
    f_NR = np.maximum(projection_NR - bound_R, 0.0)
    sums_SR = np.zeros((len(labeled.outcomes), R))
    np.add.at(sums_SR, completion_N, f_NR)
    tokens_S = np.bincount(completion_N, minlength=len(sums_SR))
    means_SR = sums_SR / np.maximum(tokens_S, 1)[:, None]
    effect = labeled.within_problems(means_SR).effect()
    weights_R = np.abs(selection.weights) * np.where(effect.value < 0, -1.0, 1.0)
    rms_R = np.sqrt(np.mean(f_NR**2, axis=0))
    return dataclasses.replace(
        selection,
        weights=tuple(weights_R.tolist()),
        rms=tuple(np.where(rms_R > 0, rms_R, 1.0).tolist()),
        scores=tuple(effect.value.tolist()),
        effects=tuple(effect.value.tolist()),
        effect_errors=tuple(effect.error.tolist()),
        q_values=None,
        seed_cosine=None,
        directions=tuple(map(tuple, directions_RD.tolist())),
        bounds=tuple(bound_R.tolist()),
        center=(0.0,) * labeled.width,
    )
