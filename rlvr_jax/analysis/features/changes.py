"""Each claim about a feature with its evidence: ratios, rates, intervals, q."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.analysis.features.log import ROLLOUT, FeatureLog
from rlvr_jax.analysis.features.texts import ALL_BANDS, BandTexts
from sae_jax.stats.dynamics import (
    CHANGE_KINDS,
    UNIQUE,
    ChangeEstimate,
    ChangeIntervals,
    Findings,
    Thresholds,
    change_intervals,
    unique_to_group,
)
from sae_jax.stats.feature_statistics import FeatureTable
from sae_jax.stats.noise_null import NoiseNull

_SEED = 0
_REPLICATES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureChange:
    """One feature in one band, with the evidence for the claim about it.

    `ratio` is mu(c) / mu(0) on reference texts. `noise_ratio` is the mean, smallest and
    largest ratio under draws of weight noise. `rollout_ratio` is the ratio on the run's
    own completions, where the text has changed too. For a unique feature,
    `absent_elsewhere` is true if every other band's interval is below the threshold. If
    it is false, the other bands may only have too few prompts. It is None if unknown or
    if the feature is not unique.
    """

    band: str
    feature: int
    kinds: tuple[str, ...]
    mean: tuple[float, float]
    rate: tuple[float, float]
    num_fired: tuple[float, float]
    prompts: int
    ratio: tuple[float, float, float]  # value, low, high
    rate_interval: tuple[float, float]
    q: float
    noise_ratio: tuple[float, float, float]
    rollout_ratio: float | None
    absent_elsewhere: bool | None
    seed_cosine: float | None
    reward_weight: float | None


def rollout_ratios(log: FeatureLog, step: int) -> dict[str, Float[np.ndarray, " Z"]]:
    """Returns mu(c) / mu(0) on own completions by band, or {} if step 0 has none.

    c is the last step up to `step` with completions, because the step after the last
    update has none.
    """
    old = rollout_means(log.table(0))
    later_steps = [s for s in log.steps if 0 < s <= step] if old else []
    for later in reversed(later_steps):
        new = rollout_means(log.table(later))
        if new:
            return {
                band: new[band] / np.where(old[band] > 0, old[band], np.nan)
                for band in old.keys() & new.keys()
            }
    return {}


def rollout_means(table: FeatureTable) -> dict[str, Float[np.ndarray, " Z"]]:
    """Returns mean activations on own completions, by band and for ALL_BANDS."""
    rows = table.select(split=ROLLOUT)
    if not rows.rows:
        return {}
    by_band = rows.sum_by("band")
    means = dict(
        zip([row.band for row in by_band.rows], by_band.statistics.mean(), strict=True)
    )
    return means | {ALL_BANDS: rows.sum_by().statistics.mean()[0]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Evidence:
    """The evidence by band; `intervals` and `absent` cover the claimed features."""

    log: FeatureLog
    features: Int[np.ndarray, " R"]
    estimates: Mapping[str, ChangeEstimate]
    findings: Mapping[str, Findings]
    nulls: Mapping[str, NoiseNull]
    intervals: Mapping[str, ChangeIntervals]
    unique: Mapping[str, Bool[np.ndarray, " Z"]]
    absent: Mapping[str, Bool[np.ndarray, " R"]]
    rollout_ratios: Mapping[str, Float[np.ndarray, " Z"]]


def feature_changes(
    log: FeatureLog,
    texts: Mapping[str, BandTexts],
    estimates: Mapping[str, ChangeEstimate],
    findings: Mapping[str, Findings],
    nulls: Mapping[str, NoiseNull],
    *,
    step: int,
) -> list[FeatureChange]:
    """Returns every claim with its evidence, band by band, the smallest q first."""
    thresholds = nulls[ALL_BANDS].thresholds
    claimed = np.any([found.changed for found in findings.values()], axis=0)
    features = np.flatnonzero(claimed)
    if not len(features):
        return []
    intervals = {
        band: change_intervals(
            part.sums, features, num_resamples=_REPLICATES, seed=_SEED
        )
        for band, part in texts.items()
    }
    unique = unique_to_group(
        {b: of_band.gained for b, of_band in findings.items() if b != ALL_BANDS},
        {b: change.is_findable(thresholds) for b, change in estimates.items()},
    )
    evidence = _Evidence(
        log=log,
        features=features,
        estimates=estimates,
        findings=findings,
        nulls=nulls,
        intervals=intervals,
        unique=unique,
        absent={
            b: _ruled_out(estimates[b], features, intervals[b], thresholds)
            for b in unique
        },
        rollout_ratios=rollout_ratios(log, step),
    )
    changes = []
    for band, of_band in findings.items():
        has_changed = of_band.changed
        in_band = [
            _feature_change(evidence, band, i)
            for i, z in enumerate(features)
            if has_changed[z]
        ]
        changes += sorted(in_band, key=lambda change: (change.q, change.feature))
    return changes


def _feature_change(evidence: _Evidence, band: str, i: int) -> FeatureChange:
    z = int(evidence.features[i])
    estimate, finding = evidence.estimates[band], evidence.findings[band]
    ratio, rate = evidence.intervals[band]
    ratios = evidence.rollout_ratios.get(band)
    kinds = [kind for kind in CHANGE_KINDS if vars(finding)[kind][z]]
    others = [absent[i] for other, absent in evidence.absent.items() if other != band]
    is_unique = band != ALL_BANDS and bool(evidence.unique[band][z])
    noise = 1 + evidence.nulls[band].mean[:, z] / (estimate.mean[0, z] or np.nan)
    return FeatureChange(
        band=band,
        feature=z,
        kinds=(*kinds, *([UNIQUE] if is_unique else [])),
        mean=_as_pair(estimate.mean[:, z]),
        rate=_as_pair(estimate.rate[:, z]),
        num_fired=_as_pair(estimate.fired[:, z]),
        prompts=int(estimate.prompts[z]),
        ratio=(float(ratio.value[i]), float(ratio.low[i]), float(ratio.high[i])),
        rate_interval=(float(rate.low[i]), float(rate.high[i])),
        q=float(min(finding.q_mean[z], finding.q_rate[z])),
        noise_ratio=(float(noise.mean()), float(noise.min()), float(noise.max())),
        rollout_ratio=_finite_or_none(ratios[z]) if ratios is not None else None,
        absent_elsewhere=bool(np.all(others)) if is_unique else None,
        seed_cosine=_finite_or_none(evidence.log.seed_cosine[z]),
        reward_weight=evidence.log.reward_weights.get(z),
    )


def _ruled_out(
    estimate: ChangeEstimate,
    features: Int[np.ndarray, " R"],
    intervals: ChangeIntervals,
    thresholds: Thresholds,
) -> Bool[np.ndarray, " R"]:
    """Returns the features that were, with confidence, not gained in a band.

    Their intervals end below the thresholds. With few prompts, intervals are wide and
    this is rare.
    """
    not_strengthened = intervals.ratio.high < 1 + thresholds.delta
    not_emerged = (estimate.rate[0][features] >= thresholds.e0) | (
        intervals.rate.high < thresholds.e1
    )
    never_fired = estimate.fired[:, features].sum(axis=0) == 0
    return never_fired | (not_strengthened & not_emerged)


def _as_pair(values: Float[np.ndarray, " 2"]) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
