"""What RL strengthened, suppressed or woke in the model, by band of difficulty.

The claims and their error rates are `sae_jax.stats.dynamics`; here they meet the run:
its bands, its own completions, the reward features, other runs.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from job_jax.files import write_atomically
from rlvr_jax.analysis.features.changes import ALL_BANDS, FeatureChange, feature_changes
from rlvr_jax.analysis.features.log import (
    REFERENCE,
    ExplainedVarianceDrop,
    FeatureLog,
    NoFeaturesError,
    explained_variance_drops,
)
from rlvr_jax.analysis.workdir import to_plain_json
from rlvr_jax.types import BANDS
from sae_jax.stats.dynamics import (
    ChangeEstimate,
    Findings,
    PairedSums,
    Thresholds,
    count_findings,
    estimate_changes,
    find_changes,
    null_counts,
    pair_tables,
    threshold_sensitivity,
)
from sae_jax.stats.feature_statistics import FeatureTable

DYNAMICS_FILE = "features/dynamics.json"
NUM_NULL_DRAWS = 20

_SEED = 0
# Settings that do not make a run another one than its seeds.
_IGNORED_FIELDS = ("name", "seed", "mesh", "log", "checkpoint", "verifier")

Counts = dict[str, dict[str, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureDynamics:
    """What changed between step 0 and `step` of one run. Written by `compute_dynamics`.

    Dictionaries run over the bands with reference texts, easy to hard, then ALL_BANDS.
    `null_counts` are the counts under random swaps of the two steps; `drops` are the
    falls in explained variance, alarms where 1 - FVE grew by more than `max_growth`.
    """

    log: FeatureLog
    step: int
    thresholds: Thresholds
    prompts: dict[str, int]
    tokens: dict[str, int]
    findings: dict[str, Findings]
    counts: Counts
    null_counts: list[Counts]
    sensitivity: list[tuple[Thresholds, Counts]]
    changes: list[FeatureChange]
    drops: list[ExplainedVarianceDrop]
    max_growth: float

    @property
    def name(self) -> str:
        """Returns the workdir's own name."""
        return self.log.run.path.name

    @property
    def excessive_drops(self) -> list[ExplainedVarianceDrop]:
        """Returns the falls by which 1 - FVE grew by more than `max_growth`."""
        return [drop for drop in self.drops if drop.growth > self.max_growth]

    def null_summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns the mean and largest count under random swaps, by band and kind."""
        return {
            band: {
                kind: {
                    "mean": float(
                        np.mean([draw[band][kind] for draw in self.null_counts])
                    ),
                    "max": max(draw[band][kind] for draw in self.null_counts),
                }
                for kind in kinds
            }
            for band, kinds in self.counts.items()
        }


def compute_dynamics(
    log: FeatureLog, thresholds: Thresholds, *, step: int | None = None
) -> FeatureDynamics:
    """Returns what the run changed by `step`, by default the last one logged.

    Raises NoFeaturesError where there is no step to compare with step 0.
    """
    step = _check_step(log, step)
    before, after = log.table(0), log.table(step)
    texts = pair_reference_texts(log, before, after)
    estimates = {band: estimate_changes(part) for band, part in texts.items()}
    findings = {
        band: find_changes(estimate, thresholds) for band, estimate in estimates.items()
    }
    bands = {band: part for band, part in texts.items() if band != ALL_BANDS}
    nulls = [
        by_band | of_all
        for by_band, of_all in zip(
            null_counts(bands, thresholds, num_draws=NUM_NULL_DRAWS, seed=_SEED),
            null_counts(
                {ALL_BANDS: texts[ALL_BANDS]},
                thresholds,
                num_draws=NUM_NULL_DRAWS,
                seed=_SEED + 1,
            ),
            strict=True,
        )
    ]
    return FeatureDynamics(
        log=log,
        step=step,
        thresholds=thresholds,
        prompts={band: len(part.tokens) for band, part in texts.items()},
        tokens={band: int(part.tokens.sum()) for band, part in texts.items()},
        findings=findings,
        counts=_count_changes(findings),
        null_counts=nulls,
        sensitivity=_count_by_thresholds(estimates, thresholds),
        changes=feature_changes(
            log, texts, estimates, findings, thresholds=thresholds, step=step
        ),
        drops=explained_variance_drops(log, step),
        max_growth=log.run.config["probe"]["max_unexplained_growth"],
    )


def _check_step(log: FeatureLog, step: int | None) -> int:
    where, steps = log.run.path, list(log.steps)
    if steps[0] != 0:
        raise NoFeaturesError(
            f"{where} has no features of step 0 (logged: {steps}): nothing to compare "
            "later steps with"
        )
    if len(steps) < 2:
        raise NoFeaturesError(
            f"{where} has features of step 0 alone: a change needs a later step. Train "
            "on, or lower probe.log_every"
        )
    if step is None:
        return steps[-1]
    if step not in steps[1:]:
        raise NoFeaturesError(f"{where} has features of steps {steps}, not of {step}")
    return step


def pair_reference_texts(
    log: FeatureLog, before: FeatureTable, after: FeatureTable
) -> dict[str, PairedSums]:
    """Returns the paired reference texts by band, easy to hard, then ALL_BANDS."""
    old, new = (table.select(split=REFERENCE) for table in (before, after))
    if not old.rows:
        raise NoFeaturesError(
            f"{log.run.path} has no reference texts logged (split {REFERENCE!r}): "
            "without the same prompts at both steps nothing can be claimed. Set "
            "probe.num_reference_texts above 0"
        )
    bands = {row.band for row in old.rows}
    try:
        by_band = {
            band: pair_tables(old.select(band=band), new.select(band=band))
            for band in [b for b in BANDS if b in bands]
        }
    except ValueError as error:
        raise NoFeaturesError(f"{log.run.path}: {error}") from error
    return by_band | {ALL_BANDS: PairedSums.concatenate([*by_band.values()])}


def _count_changes(findings: Mapping[str, Findings]) -> Counts:
    """Returns the number of features of each kind, by band."""
    by_band = count_findings(
        {band: claim for band, claim in findings.items() if band != ALL_BANDS}
    )
    return by_band | count_findings({ALL_BANDS: findings[ALL_BANDS]})


def _count_by_thresholds(
    estimates: Mapping[str, ChangeEstimate], thresholds: Thresholds
) -> list[tuple[Thresholds, Counts]]:
    bands = {band: change for band, change in estimates.items() if band != ALL_BANDS}
    all_bands = {ALL_BANDS: estimates[ALL_BANDS]}
    return [
        (varied, by_band | of_all)
        for (varied, by_band), (_, of_all) in zip(
            threshold_sensitivity(bands, thresholds),
            threshold_sensitivity(all_bands, thresholds),
            strict=True,
        )
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedGroup:
    """Runs that differ in their seed alone. `gained`, `unique` are numbers by band.

    A group gained a feature if every run of it did; the feature is unique to it if no
    run of another group did. `between_seeds` counts what differs between two of its
    seeds on the same texts at their last steps, which is chance. None: there is one
    run, or the texts are not the same.
    """

    runs: tuple[str, ...]
    gained: dict[str, int]
    unique: dict[str, int]
    unique_features: dict[str, list[int]]
    between_seeds: Counts | None


def compare_seed_groups(
    dynamics: Sequence[FeatureDynamics], thresholds: Thresholds
) -> list[SeedGroup]:
    """Returns the runs in groups of seeds, with what each group alone gained.

    The paper's table: "hard training makes 35 features of its own". The runs' features
    are of one autoencoder (`features.log.check_same_sae`).
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
    """Returns the counts of the second run against the first, as if it were step 0."""
    if len(runs) < 2:
        return None
    first, second = (run.log.table(run.step) for run in runs[:2])
    try:
        texts = pair_reference_texts(runs[0].log, first, second)
    except NoFeaturesError:
        return None
    return _count_changes(
        {
            b: find_changes(estimate_changes(part), thresholds)
            for b, part in texts.items()
        }
    )


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
        "counts": dynamics.counts,
        "null": dynamics.null_summary(),
        "sensitivity": [
            {"delta": t.delta, "e0": t.e0, "e1": t.e1, "counts": by_band}
            for t, by_band in dynamics.sensitivity
        ],
        "sae_fidelity": [dataclasses.asdict(drop) for drop in dynamics.drops],
        "features": [dataclasses.asdict(row) for row in dynamics.changes],
        "seed_groups": [dataclasses.asdict(group) for group in groups],
    }
    return to_plain_json(record)
