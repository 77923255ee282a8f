"""Each claim about a feature with the numbers it rests on."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.analysis.feature_log import OWN, FeatureLog
from sae_jax.dynamics import (
    KINDS,
    UNIQUE,
    Change,
    ChangeIntervals,
    Claims,
    Cuts,
    Paired,
    change_intervals,
    unique,
)
from sae_jax.feature_statistics import FeatureTable

ALL = "all"  # the band of all bands

_SEED = 0
_REPLICATES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moved:
    """One feature in one band: the numbers a claim about it rests on.

    `ratio` is mu(c) / mu(0) on fixed texts, `own_ratio` on the run's own completions,
    where what is read has changed too. `only_here` says of a unique feature whether
    every other band's interval lies below the cut; without that, "in no other" may only
    mean that the others have too few prompts. None: not known, or not unique.
    """

    band: str
    feature: int
    kinds: tuple[str, ...]
    mean: tuple[float, float]
    rate: tuple[float, float]
    fired: tuple[float, float]
    prompts: int
    ratio: tuple[float, float, float]  # value, low, high
    rate_interval: tuple[float, float]
    q: float
    own_ratio: float | None
    only_here: bool | None
    stability: float | None
    reward_weight: float | None


def own_ratios(log: FeatureLog, step: int) -> dict[str, Float[np.ndarray, " Z"]]:
    """Returns mu(c) / mu(0) on own completions by band; {} without those of step 0.

    c is the last step up to `step` whose completions were read: a run that has ended
    samples no more.
    """
    old = own_means(log.table(0))
    for at in reversed([s for s in log.steps if 0 < s <= step] if old else []):
        new = own_means(log.table(at))
        if new:
            return {
                band: new[band] / np.where(old[band] > 0, old[band], np.nan)
                for band in old.keys() & new.keys()
            }
    return {}


def own_means(table: FeatureTable) -> dict[str, Float[np.ndarray, " Z"]]:
    """Returns mean activations on the run's own completions, by band and of ALL."""
    rows = table.where(split=OWN)
    if not rows.rows:
        return {}
    by_band = rows.merged("band")
    means = dict(
        zip([row.band for row in by_band.rows], by_band.statistics.mean(), strict=True)
    )
    return means | {ALL: rows.merged().statistics.mean()[0]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Evidence:
    """What rows are made of, by band; `ends` and `absent` have a column a feature."""

    log: FeatureLog
    features: Int[np.ndarray, " R"]
    measured: Mapping[str, Change]
    found: Mapping[str, Claims]
    ends: Mapping[str, ChangeIntervals]
    alone: Mapping[str, Bool[np.ndarray, " Z"]]
    absent: Mapping[str, Bool[np.ndarray, " R"]]
    own: Mapping[str, Float[np.ndarray, " Z"]]


def moved_rows(
    log: FeatureLog,
    texts: Mapping[str, Paired],
    measured: Mapping[str, Change],
    found: Mapping[str, Claims],
    *,
    cuts: Cuts,
    step: int,
) -> list[Moved]:
    """Returns every claim with its numbers, band by band, the surest first."""
    claimed = np.any([c.gained | c.suppressed for c in found.values()], axis=0)
    features = np.flatnonzero(claimed)
    if not len(features):
        return []
    ends = {
        band: change_intervals(part, features, replicates=_REPLICATES, seed=_SEED)
        for band, part in texts.items()
    }
    alone = unique({b: claim.gained for b, claim in found.items() if b != ALL})
    evidence = _Evidence(
        log=log,
        features=features,
        measured=measured,
        found=found,
        ends=ends,
        alone=alone,
        absent={b: _absent(measured[b], features, ends[b], cuts) for b in alone},
        own=own_ratios(log, step),
    )
    rows = []
    for band, claim in found.items():
        moved = claim.gained | claim.suppressed
        of_band = [_row(evidence, band, i) for i, z in enumerate(features) if moved[z]]
        rows += sorted(of_band, key=lambda row: (row.q, row.feature))
    return rows


def _row(evidence: _Evidence, band: str, i: int) -> Moved:
    z = int(evidence.features[i])
    change, claim = evidence.measured[band], evidence.found[band]
    ratio, rate = evidence.ends[band]
    kinds = [kind for kind in KINDS if vars(claim)[kind][z]]
    others = [absent[i] for other, absent in evidence.absent.items() if other != band]
    is_unique = band != ALL and bool(others) and bool(evidence.alone[band][z])
    return Moved(
        band=band,
        feature=z,
        kinds=(*kinds, *([UNIQUE] if is_unique else [])),
        mean=_two(change.mean[:, z]),
        rate=_two(change.rate[:, z]),
        fired=_two(change.fired[:, z]),
        prompts=int(change.prompts[z]),
        ratio=(float(ratio.value[i]), float(ratio.low[i]), float(ratio.high[i])),
        rate_interval=(float(rate.low[i]), float(rate.high[i])),
        q=float(min(claim.q_mean[z], claim.q_rate[z])),
        own_ratio=_known(evidence.own[band][z]) if band in evidence.own else None,
        only_here=bool(np.all(others)) if is_unique else None,
        stability=_known(evidence.log.stability[z]),
        reward_weight=evidence.log.weights.get(z),
    )


def _absent(
    change: Change, features: Int[np.ndarray, " R"], ends: ChangeIntervals, cuts: Cuts
) -> Bool[np.ndarray, " R"]:
    """Returns which features a band has surely neither strengthened nor woken.

    That is, their intervals end below the cuts: few prompts leave them wide.
    """
    not_stronger = ends.ratio.high < 1 + cuts.delta
    not_woken = (change.rate[0][features] >= cuts.e0) | (ends.rate.high < cuts.e1)
    silent = change.fired[:, features].sum(axis=0) == 0
    return silent | (not_stronger & not_woken)


def _two(values: Float[np.ndarray, " 2"]) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
