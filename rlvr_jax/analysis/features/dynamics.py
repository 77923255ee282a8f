"""The features that RL strengthened, suppressed or woke, by difficulty band.

`sae_jax.stats.dynamics` and `noise_null` make the claims and control their error rates.
This module applies them to a run: its bands, its completions, its reward features, and
other runs.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from job_jax.files import write_atomically
from rlvr_jax.analysis.features.changes import FeatureChange, feature_changes
from rlvr_jax.analysis.features.log import (
    REFERENCE,
    ExplainedVarianceDrop,
    FeatureLog,
    NoFeaturesError,
    explained_variance_drops,
)
from rlvr_jax.analysis.features.texts import (
    ALL_BANDS,
    BandTexts,
    pair_reference_texts,
)
from rlvr_jax.probe.weight_noise import NoiseReadings
from rlvr_jax.report.run_files import to_plain_json
from rlvr_jax.types import BANDS
from sae_jax.stats.dynamics import (
    ChangeEstimate,
    Findings,
    Thresholds,
    count_findings,
    estimate_changes,
    find_changes,
    vary_thresholds,
)
from sae_jax.stats.noise_null import NoiseNull

DYNAMICS_FILE = "features/dynamics.json"
MOVED, CLAIMED = "moved", "claimed"
EQUAL_DRIFT, EQUAL_NORM = "noise of equal drift", "noise of equal weight norm"

# Runs that differ only in these fields count as seeds of one run.
_IGNORED_FIELDS = ("name", "seed", "mesh", "log", "checkpoint", "verifier")

Counts = dict[str, dict[str, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tally:
    """How many features a change of the weights moves, and how many are claimed.

    `draws` has the counts of each draw: claimed features by kind, all claimed features
    (CLAIMED), and all features that pass the thresholds and the sign-flip test (MOVED).
    `drift` is how far the residual stream moved, relative to its root mean square.
    """

    label: str
    drift: float
    draws: list[Counts]

    def mean(self, band: str, kind: str) -> float:
        """Returns the mean count over the draws; NaN if no draw has the band."""
        counts = [draw[band][kind] for draw in self.draws if band in draw]
        return float(np.mean(counts)) if counts else float("nan")

    def largest(self, band: str, kind: str) -> int:
        """Returns the largest count in any draw."""
        return max((draw[band][kind] for draw in self.draws if band in draw), default=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureDynamics:
    """What changed between step 0 and `step` of one run. Written by `compute_dynamics`.

    Dictionaries have the bands with enough reference texts, easy to hard, then
    ALL_BANDS. `omitted` has the other bands, with their numbers of texts. `tally` has
    the run's counts, and `nulls` the counts under weight noise. `drops` are falls in
    explained variance; a drop is an alarm if 1 - FVE grew by more than `max_growth`.
    """

    log: FeatureLog
    step: int
    thresholds: Thresholds
    prompts: dict[str, int]
    tokens: dict[str, int]
    omitted: dict[str, int]
    findings: dict[str, Findings]
    tally: Tally
    nulls: list[Tally]
    sensitivity: list[tuple[Thresholds, Counts]]
    changes: list[FeatureChange]
    drops: list[ExplainedVarianceDrop]
    max_growth: float

    @property
    def name(self) -> str:
        """Returns the name of the workdir."""
        return self.log.run.path.name

    @property
    def counts(self) -> Counts:
        """Returns the run's counts."""
        return self.tally.draws[0]

    @property
    def excessive_drops(self) -> list[ExplainedVarianceDrop]:
        """Returns the drops in which 1 - FVE grew by more than `max_growth`."""
        return [drop for drop in self.drops if drop.growth > self.max_growth]


def compute_dynamics(
    log: FeatureLog, thresholds: Thresholds, *, step: int | None = None
) -> FeatureDynamics:
    """Returns the run's changes up to `step`, by default the last logged step.

    Raises NoFeaturesError if step 0 or a later step is missing, or if there are no
    readings under weight noise.
    """
    step = check_step(log, step)
    texts = pair_reference_texts(log, log.table(0), log.table(step), thresholds)
    readings = log.noise(step)
    estimates = {
        b: estimate_changes(t.sums, thresholds) for b, t in texts.bands.items()
    }
    drift = _estimate_draws(readings, "drift", texts.bands, thresholds)
    tests = {t: _make_nulls(drift, t) for t in vary_thresholds(thresholds)}
    findings = {
        band: null.compare(estimates[band]) for band, null in tests[thresholds].items()
    }
    nulls = []
    for kind, label in (("check", EQUAL_DRIFT), ("norm", EQUAL_NORM)):
        draws = _estimate_draws(readings, kind, texts.bands, thresholds)
        nulls.append(
            Tally(
                label=label,
                drift=readings.relative_drift(kind),
                draws=[_count_changes(draw, tests[thresholds]) for draw in draws],
            )
        )
    return FeatureDynamics(
        log=log,
        step=step,
        thresholds=thresholds,
        prompts={band: len(part.prompts) for band, part in texts.bands.items()},
        tokens={b: int(part.sums.tokens.sum()) for b, part in texts.bands.items()},
        omitted=texts.omitted,
        findings=findings,
        tally=Tally(
            label="this run",
            drift=readings.relative_drift("rl"),
            draws=[_count_changes(estimates, tests[thresholds])],
        ),
        nulls=nulls,
        sensitivity=[
            (varied, _count_changes(estimates, null)) for varied, null in tests.items()
        ],
        changes=feature_changes(
            log, texts.bands, estimates, findings, tests[thresholds], step=step
        ),
        drops=explained_variance_drops(log, step),
        max_growth=log.run.config["probe"]["max_unexplained_growth"],
    )


def _estimate_draws(
    readings: NoiseReadings,
    kind: str,
    texts: Mapping[str, BandTexts],
    thresholds: Thresholds,
) -> list[dict[str, ChangeEstimate]]:
    """Returns every draw's changes by band, on the same texts as the run's changes."""
    by_band = {
        band: [
            estimate_changes(sums, thresholds)
            for sums in readings.draws(kind, part.prompts)
        ]
        for band, part in texts.items()
    }
    return [
        dict(zip(by_band, draw, strict=True))
        for draw in zip(*by_band.values(), strict=True)
    ]


def _make_nulls(
    draws: Sequence[Mapping[str, ChangeEstimate]], thresholds: Thresholds
) -> dict[str, NoiseNull]:
    return {
        band: NoiseNull.from_draws([draw[band] for draw in draws], thresholds)
        for band in draws[0]
    }


def _count_changes(
    estimates: Mapping[str, ChangeEstimate], nulls: Mapping[str, NoiseNull]
) -> Counts:
    """Returns the number of claims of each kind, and of moved features, by band."""
    thresholds = nulls[ALL_BANDS].thresholds
    claims = {band: nulls[band].compare(change) for band, change in estimates.items()}
    found = {
        band: find_changes(change, thresholds) for band, change in estimates.items()
    }
    by_kind = _count_by_kind(claims, estimates, thresholds)
    return {
        band: kinds
        | {
            CLAIMED: int(claims[band].changed.sum()),
            MOVED: int(found[band].changed.sum()),
        }
        for band, kinds in by_kind.items()
    }


def _count_by_kind(
    findings: Mapping[str, Findings],
    estimates: Mapping[str, ChangeEstimate],
    thresholds: Thresholds,
) -> Counts:
    """Returns the number of features of each kind, by band.

    ALL_BANDS is counted separately, so it does not affect which features are unique.
    """
    by_band = {band: claim for band, claim in findings.items() if band != ALL_BANDS}
    of_all = {ALL_BANDS: findings[ALL_BANDS]}
    return count_findings(by_band, estimates, thresholds) | count_findings(
        of_all, estimates, thresholds
    )


def check_step(log: FeatureLog, step: int | None) -> int:
    """Returns the step to compare with step 0. Raises NoFeaturesError."""
    where, steps = log.run.path, list(log.steps)
    if steps[0] != 0:
        raise NoFeaturesError(
            f"{where} has no features of step 0 (logged: {steps}): nothing to compare "
            "later steps with"
        )
    if len(steps) < 2:
        raise NoFeaturesError(
            f"{where} has features of step 0 only: a change needs a later step; train "
            "longer, or lower probe.log_every"
        )
    if step is None:
        return steps[-1]
    if step not in steps[1:]:
        raise NoFeaturesError(f"{where} has features of steps {steps}, not of {step}")
    return step


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedGroup:
    """Runs that differ only in their seed. `gained` and `unique` are counts by band.

    A group gained a feature if all its runs did. The feature is unique to the group if
    no run of another group gained it. `between_seeds` compares two seeds at their last
    steps on the same texts, and counts features like MOVED, without a noise test. It is
    None if there is one run or if the texts differ.
    """

    runs: tuple[str, ...]
    gained: dict[str, int]
    unique: dict[str, int]
    unique_features: dict[str, list[int]]
    between_seeds: Counts | None


def compare_seed_groups(
    dynamics: Sequence[FeatureDynamics], thresholds: Thresholds
) -> list[SeedGroup]:
    """Returns the runs in groups of seeds, with the features that only a group gained.

    It corresponds to the paper's table: "hard training makes 35 features of its own".
    All runs must use the same autoencoder (`features.log.check_same_sae`).
    """
    groups: dict[str, list[FeatureDynamics]] = {}
    for run in dynamics:
        groups.setdefault(_training_key(run), []).append(run)
    bands = [
        b for b in (*BANDS, ALL_BANDS) if all(b in run.findings for run in dynamics)
    ]
    result = []
    for runs in groups.values():
        others = [run for run in dynamics if run not in runs]
        gained: dict[str, Bool[np.ndarray, " Z"]] = {
            band: np.all([run.findings[band].gained for run in runs], axis=0)
            for band in bands
        }
        unique = {
            band: mask & ~np.any([o.findings[band].gained for o in others], axis=0)
            if others
            else mask
            for band, mask in gained.items()
        }
        result.append(
            SeedGroup(
                runs=tuple(run.name for run in runs),
                gained={band: int(mask.sum()) for band, mask in gained.items()},
                unique={band: int(mask.sum()) for band, mask in unique.items()},
                unique_features={
                    b: np.flatnonzero(m).tolist() for b, m in unique.items()
                },
                between_seeds=_count_between_seeds(runs, thresholds),
            )
        )
    return result


def _training_key(dynamics: FeatureDynamics) -> str:
    config = dynamics.log.run.config
    compared = {
        name: value for name, value in config.items() if name not in _IGNORED_FIELDS
    }
    return json.dumps(compared, sort_keys=True)


def _count_between_seeds(
    runs: Sequence[FeatureDynamics], thresholds: Thresholds
) -> Counts | None:
    """Returns the counts of the second run, with the first in the role of step 0."""
    if len(runs) < 2:
        return None
    first, second = (run.log.table(run.step) for run in runs[:2])
    try:
        texts = pair_reference_texts(runs[0].log, first, second, thresholds)
    except NoFeaturesError:
        return None
    estimates = {
        b: estimate_changes(t.sums, thresholds) for b, t in texts.bands.items()
    }
    found = {b: find_changes(change, thresholds) for b, change in estimates.items()}
    return _count_by_kind(found, estimates, thresholds)


def write_dynamics(dynamics: FeatureDynamics, groups: Sequence[SeedGroup] = ()) -> str:
    """Writes features/dynamics.json into the run's workdir; returns its path."""
    path = dynamics.log.run.path / DYNAMICS_FILE
    with write_atomically(path) as partial:
        partial.write_text(json.dumps(to_json(dynamics, groups), indent=2) + "\n")
    return str(path)


def to_json(
    dynamics: FeatureDynamics, groups: Sequence[SeedGroup] = ()
) -> dict[str, Any]:
    """Returns the whole result as JSON; infinite and unknown numbers are null."""
    record = {
        "run": dynamics.name,
        "sae_digest": dynamics.log.sae_digest,
        "split": REFERENCE,
        "steps": [0, dynamics.step],
        "thresholds": dataclasses.asdict(dynamics.thresholds),
        "prompts": dynamics.prompts,
        "tokens": dynamics.tokens,
        "tested": {band: claim.num_tested for band, claim in dynamics.findings.items()},
        "omitted": dynamics.omitted,
        "counts": dynamics.counts,
        "drift": dynamics.tally.drift,
        "nulls": [dataclasses.asdict(null) for null in dynamics.nulls],
        "sensitivity": [
            {"delta": t.delta, "e0": t.e0, "e1": t.e1, "counts": by_band}
            for t, by_band in dynamics.sensitivity
        ],
        "sae_fidelity": [dataclasses.asdict(drop) for drop in dynamics.drops],
        "features": [dataclasses.asdict(row) for row in dynamics.changes],
        "seed_groups": [dataclasses.asdict(group) for group in groups],
    }
    return to_plain_json(record)
