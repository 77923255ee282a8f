"""Feature dynamics of runs: what RL strengthened, suppressed or woke, by band.

The claims and their error rates are `sae_jax.dynamics`; here they meet the run: its
bands, its own completions, the reward features, other runs.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from rlvr_jax.analysis.feature_log import (
    FIXED,
    Drop,
    FeatureLog,
    NoFeaturesError,
    drops,
)
from rlvr_jax.analysis.feature_rows import ALL, Moved, moved_rows
from rlvr_jax.types import BANDS
from sae_jax.dynamics import (
    Change,
    Claims,
    Cuts,
    Paired,
    changes,
    claims,
    counts,
    null_counts,
    paired,
    sensitivity,
)
from sae_jax.feature_statistics import FeatureTable

DYNAMICS_FILE = "features/dynamics.json"
NULL_DRAWS = 20

_SEED = 0
# Settings that do not make a run another one than its seeds.
_NOT_TRAINING = ("name", "seed", "mesh", "log", "checkpoint", "verifier")

Counts = dict[str, dict[str, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamics:
    """What changed between step 0 and `step` of one run. Written by `dynamics`.

    Bands with fixed texts, easy to hard, then ALL; `null` holds what runs without
    change would count. `drops` are those beyond `max_drop`.
    """

    log: FeatureLog
    step: int
    cuts: Cuts
    prompts: dict[str, int]
    tokens: dict[str, int]
    claims: dict[str, Claims]
    counts: Counts
    null: list[Counts]
    sensitivity: list[tuple[Cuts, Counts]]
    rows: list[Moved]
    drops: list[Drop]
    max_drop: float

    @property
    def name(self) -> str:
        """Returns the workdir's own name."""
        return self.log.run.path.name

    @property
    def broken(self) -> list[Drop]:
        """Returns the drops of explained variance that are alarms."""
        return [drop for drop in self.drops if drop.lost > self.max_drop]

    def null_summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns mean and largest count of the null's draws, by band and kind."""
        return {
            band: {
                kind: {
                    "mean": float(np.mean([draw[band][kind] for draw in self.null])),
                    "max": max(draw[band][kind] for draw in self.null),
                }
                for kind in kinds
            }
            for band, kinds in self.counts.items()
        }


def dynamics(log: FeatureLog, cuts: Cuts, *, step: int | None = None) -> Dynamics:
    """Returns what the run changed by `step`, by default the last one logged.

    Raises NoFeaturesError where there is nothing to set against step 0.
    """
    step = _checked(log, step)
    before, after = log.table(0), log.table(step)
    texts = fixed_texts(log, before, after)
    measured = {band: changes(part) for band, part in texts.items()}
    found = {band: claims(change, cuts) for band, change in measured.items()}
    bands = {band: part for band, part in texts.items() if band != ALL}
    nulls = [
        by_band | whole
        for by_band, whole in zip(
            null_counts(bands, cuts, draws=NULL_DRAWS, seed=_SEED),
            null_counts({ALL: texts[ALL]}, cuts, draws=NULL_DRAWS, seed=_SEED + 1),
            strict=True,
        )
    ]
    return Dynamics(
        log=log,
        step=step,
        cuts=cuts,
        prompts={band: len(part.tokens) for band, part in texts.items()},
        tokens={band: int(part.tokens.sum()) for band, part in texts.items()},
        claims=found,
        counts=_counts(found),
        null=nulls,
        sensitivity=_sensitivity(measured, cuts),
        rows=moved_rows(log, texts, measured, found, cuts=cuts, step=step),
        drops=drops(log, step),
        max_drop=log.run.config["probe"]["max_fve_drop"],
    )


def _checked(log: FeatureLog, step: int | None) -> int:
    where, steps = log.run.path, list(log.steps)
    if steps[0] != 0:
        raise NoFeaturesError(
            f"{where} has no features of step 0 (logged: {steps}): nothing to set "
            "later steps against"
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


def fixed_texts(
    log: FeatureLog, before: FeatureTable, after: FeatureTable
) -> dict[str, Paired]:
    """Returns the fixed texts of two tables by band, easy to hard, and of ALL."""
    old, new = (table.where(split=FIXED) for table in (before, after))
    if not old.rows:
        raise NoFeaturesError(
            f"{log.run.path} has no fixed texts logged (split {FIXED!r}): without the "
            "same prompts at both steps nothing can be claimed. Set probe.fixed above 0"
        )
    there = {row.band for row in old.rows}
    try:
        by_band = {
            band: paired(old.where(band=band), new.where(band=band))
            for band in [b for b in BANDS if b in there]
        }
    except ValueError as error:
        raise NoFeaturesError(f"{log.run.path}: {error}") from error
    return by_band | {ALL: Paired.joined([*by_band.values()])}


def _counts(found: Mapping[str, Claims]) -> Counts:
    """Returns all kinds by band; nothing is unique to ALL."""
    by_band = counts({band: claim for band, claim in found.items() if band != ALL})
    return by_band | counts({ALL: found[ALL]})


def _sensitivity(
    measured: Mapping[str, Change], cuts: Cuts
) -> list[tuple[Cuts, Counts]]:
    bands = {band: change for band, change in measured.items() if band != ALL}
    whole = {ALL: measured[ALL]}
    return [
        (varied, by_band | of_all)
        for (varied, by_band), (_, of_all) in zip(
            sensitivity(bands, cuts), sensitivity(whole, cuts), strict=True
        )
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in their seed alone. `gained`, `own` are numbers by band.

    A feature is the group's if every run of it gained it, and its own if besides no run
    of another group did. `between` counts what changes from one of its seeds to another
    on the same texts at their last steps: chance, as training has it. None: there is
    one run, or the texts are not the same.
    """

    runs: tuple[str, ...]
    gained: dict[str, int]
    own: dict[str, int]
    own_features: dict[str, list[int]]
    between: Counts | None


def compared(found: Sequence[Dynamics], cuts: Cuts) -> list[Group]:
    """Returns the runs in groups of seeds, with what each group alone gained.

    The paper's table: "hard training makes 35 features of its own". The runs' features
    are of one dictionary (`feature_log.same_dictionary`).
    """
    groups: dict[str, list[Dynamics]] = {}
    for each in found:
        groups.setdefault(_training(each), []).append(each)
    bands = [b for b in (*BANDS, ALL) if all(b in each.claims for each in found)]
    result = []
    for runs in groups.values():
        others = [each for each in found if each not in runs]
        gained: dict[str, Bool[np.ndarray, " Z"]] = {
            band: np.all([run.claims[band].gained for run in runs], axis=0)
            for band in bands
        }
        own = {
            band: mask & ~np.any([o.claims[band].gained for o in others], axis=0)
            if others
            else mask
            for band, mask in gained.items()
        }
        result.append(
            Group(
                runs=tuple(run.name for run in runs),
                gained={band: int(mask.sum()) for band, mask in gained.items()},
                own={band: int(mask.sum()) for band, mask in own.items()},
                own_features={b: np.flatnonzero(m).tolist() for b, m in own.items()},
                between=_between(runs, cuts),
            )
        )
    return result


def _training(found: Dynamics) -> str:
    config = found.log.run.config
    kept = {name: value for name, value in config.items() if name not in _NOT_TRAINING}
    return json.dumps(kept, sort_keys=True)


def _between(runs: Sequence[Dynamics], cuts: Cuts) -> Counts | None:
    """Returns what the first two runs claim of each other, as if one were step 0."""
    if len(runs) < 2:
        return None
    first, second = (run.log.table(run.step) for run in runs[:2])
    try:
        texts = fixed_texts(runs[0].log, first, second)
    except NoFeaturesError:
        return None
    return _counts({b: claims(changes(part), cuts) for b, part in texts.items()})


def write_dynamics(found: Dynamics, groups: Sequence[Group] = ()) -> str:
    """Writes features/dynamics.json into the run's workdir; returns its path."""
    path = found.log.run.path / DYNAMICS_FILE
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record(found, groups), indent=2) + "\n")
    os.replace(partial, path)
    return str(path)


def record(found: Dynamics, groups: Sequence[Group] = ()) -> dict[str, Any]:
    """Returns everything found, as JSON holds it: infinite and unknown are null."""
    whole = {
        "run": found.name,
        "dictionary": found.log.dictionary,
        "split": FIXED,
        "steps": [0, found.step],
        "cuts": dataclasses.asdict(found.cuts),
        "prompts": found.prompts,
        "tokens": found.tokens,
        "tested": {band: claim.tested for band, claim in found.claims.items()},
        "counts": found.counts,
        "null": found.null_summary(),
        "sensitivity": [
            {"delta": cuts.delta, "e0": cuts.e0, "e1": cuts.e1, "counts": by_band}
            for cuts, by_band in found.sensitivity
        ],
        "validity": [dataclasses.asdict(drop) for drop in found.drops],
        "features": [dataclasses.asdict(row) for row in found.rows],
        "compared": [dataclasses.asdict(group) for group in groups],
    }
    return _finite(whole)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
