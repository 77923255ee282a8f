"""The metrics of one run, to compare with other runs."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from job_jax.resampling import Interval
from rlvr_jax.analysis.features.dynamics import (
    CLAIMED,
    DYNAMICS_FILE,
    EQUAL_DRIFT,
)
from rlvr_jax.analysis.features.texts import ALL_BANDS
from rlvr_jax.analysis.tables import first_and_last_tenth, mean
from rlvr_jax.analysis.workdir import RunArtifacts
from rlvr_jax.metrics.crossing import Counts, count_correct
from rlvr_jax.metrics.lenient import has_lenient_accuracy, states_gold
from rlvr_jax.metrics.scores import bands_from_verdicts
from rlvr_jax.metrics.statistics import pass_at_k
from rlvr_jax.rollouts.graded import Verdicts
from rlvr_jax.types import BANDS

PASS, PASS_BEFORE, GAIN = "pass@k", "pass@k before RL", "pass@k gained"
CHOSEN, RIGHT_IF_CHOSEN = "chosen", "correct if chosen"  # a strategy
CHOSEN_GAINED, RIGHT_GAINED = "chosen gained", "correct if chosen gained"
LENGTH = "completion length"
LENIENT, LENIENT_GAINED = "lenient accuracy", "lenient accuracy gained"
REWARD, REWARD_GAINED = "reward", "reward gained"  # training: last tenth; minus first
NO_SIGNAL, ALL_INCORRECT = "groups without signal", "groups all incorrect"  # verdicts
ZERO_ADVANTAGE = "groups of zero advantage"  # groups whose rewards teach nothing
PROXIED, LUCK = "groups with a proxy", "mass on wrong steps"
ALARMS, SECONDS = "alarms", "seconds"
# Calibration of the stated confidence, by the keys of summary.json.
CALIBRATION = {"Brier score": "brier", "ECE": "ece", "AUROC": "auroc"}
_BEFORE = " before RL"
# Kinds of change, as `analysis features` counts them.
FEATURES = {
    kind: f"features {kind}"
    for kind in ("strengthened", "suppressed", "emerging", "unique", "claimed")
}
NOISE_FEATURES = "features that noise claims"  # weight noise with equal drift
OWN_FEATURES = "features of its own"  # measured only for an experiment's arms
METRIC_NAMES = (
    *(PASS, PASS_BEFORE, GAIN),
    *(CHOSEN, CHOSEN_GAINED, RIGHT_IF_CHOSEN, RIGHT_GAINED),
    *(LENIENT, LENIENT_GAINED, LENGTH),
    *(
        REWARD,
        REWARD_GAINED,
        NO_SIGNAL,
        ALL_INCORRECT,
        ZERO_ADVANTAGE,
        PROXIED,
        LUCK,
        *FEATURES.values(),
        NOISE_FEATURES,
        OWN_FEATURES,
        *CALIBRATION,
        *(name + _BEFORE for name in CALIBRATION),
        ALARMS,
        SECONDS,
    ),
)
# Fractions that are averaged over the training steps.
_MEANS_OVER_STEPS = {
    ALL_INCORRECT: "groups/all_incorrect",
    ZERO_ADVANTAGE: "advantage/zero_groups",
    PROXIED: "rfgo/proxy_groups",
    LUCK: "lucky/wrong_steps_mass",
}
# Bounds of fractions and of their differences; other numbers have no bounds.
FRACTION = (0.0, 1.0)
BOUNDS = dict.fromkeys(
    (
        *(PASS, PASS_BEFORE, CHOSEN, RIGHT_IF_CHOSEN, LENIENT, NO_SIGNAL),
        *_MEANS_OVER_STEPS,
        *CALIBRATION,
        *(name + _BEFORE for name in CALIBRATION),
    ),
    FRACTION,
) | dict.fromkeys((GAIN, CHOSEN_GAINED, RIGHT_GAINED, LENIENT_GAINED), (-1.0, 1.0))

RolloutRow = Mapping[str, Any]
RowsByProblem = Mapping[str, list[RolloutRow]]


class Metric(NamedTuple):
    """Identifies a number of a run: its name, its group of problems, and its k if any.

    `grouping` is "all", "band", "type" or "strategy". `group` is the band, the type, or
    the type and the strategy.
    """

    name: str
    grouping: str = "all"
    group: str = ""
    k: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """A metric's value in one run.

    If the run's rollouts exist, `by_problem` has the value of each problem, and `mean`
    is their mean. If not, `interval` is the one in summary.json.
    """

    mean: float
    by_problem: Mapping[str, float] | None = None
    interval: Interval | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """A run with its scores, and sentences about missing data.

    `after` and `before` are the numbers of samples and of correct samples for each
    held-out problem, after and before RL; {} if the rollouts are missing.
    """

    run: RunArtifacts
    scores: dict[Metric, Score]
    missing: list[str]
    after: Counts
    before: Counts


def measure_run(run: RunArtifacts) -> RunMetrics:
    """Returns the scores of a run, finished or not."""
    missing: list[str] = []
    after, before = (
        _rows_by_problem(run, stage) for stage in ("eval_after", "eval_before")
    )
    scores = _training_scores(run, missing)
    if not run.summary.get("eval", {}).get("after"):
        missing.append("no evaluation after RL")
    elif not after:
        missing.append(
            "no rollouts of its evaluation: intervals come from summary.json, and "
            "differences have no interval"
        )
        scores |= _summary_scores(run.summary["eval"]["after"])
    else:
        scores |= _eval_scores(run, after, before, missing)
    scores |= _strategy_scores(run.summary.get("eval", {}))
    scores |= _calibration_scores(run.summary.get("eval", {}))
    scores |= _feature_scores(run)
    if "stages" in run.summary:
        scores[Metric(SECONDS)] = Score(mean=sum(run.summary["stages"].values()))
    return RunMetrics(
        run=run,
        scores=scores,
        missing=missing,
        after=count_correct(_verdicts(after)),
        before=count_correct(_verdicts(before)),
    )


def _training_scores(run: RunArtifacts, missing: list[str]) -> dict[Metric, Score]:
    """Returns the scores of the training steps: alarms, reward, missing signal."""
    done, num_steps = len(run.stage("train")), run.config["train"]["steps"]
    if done < num_steps:
        missing.append(f"{done} of {num_steps} training steps done")
    if not done:
        return {}
    scores = {Metric(ALARMS): Score(mean=float(len(run.alarms)))}
    if reward := run.series("train", "reward/mean")[1]:
        first, last = first_and_last_tenth(reward)
        scores[Metric(REWARD)] = Score(mean=last)
        scores[Metric(REWARD_GAINED)] = Score(mean=last - first)
    if has_signal := run.series("train", "groups/nonzero_std")[1]:
        scores[Metric(NO_SIGNAL)] = Score(mean=1 - mean(has_signal))
    for name, logged in _MEANS_OVER_STEPS.items():
        if values := run.series("train", logged)[1]:
            scores[Metric(name)] = Score(mean=mean(values))
    return scores


def _rows_by_problem(run: RunArtifacts, stage: str) -> RowsByProblem:
    """Returns an evaluation's completions by problem, {} if none were saved."""
    by_id: dict[str, list[RolloutRow]] = {}
    for row in run.rollouts(stage, 0) if run.rollout_steps(stage) else ():
        by_id.setdefault(row["id"], []).append(row)
    return by_id


def _verdicts(rows: RowsByProblem) -> Verdicts:
    return {name: [row["verdict"] for row in each] for name, each in rows.items()}


def _eval_scores(
    run: RunArtifacts, after: RowsByProblem, before: RowsByProblem, missing: list[str]
) -> dict[Metric, Score]:
    """Returns the held-out scores, problem by problem, from the saved rollouts."""
    ks = [int(k) for k in run.summary["eval"]["after"]["pass@k"]]
    groups: list[tuple[str, str, list[str]]] = [("all", "", list(after))]
    if before:
        bands = bands_from_verdicts(_verdicts(before), run.band_thresholds)
        groups += _split_problems(
            "band", after, lambda name: bands.get(name, "unknown"), BANDS
        )
    else:
        missing.append("no rollouts before RL: no bands")
    types = {name: rows[0]["type"] for name, rows in after.items()}
    groups += _split_problems(
        "type", after, types.__getitem__, sorted(set(types.values()) - {""})
    )
    now, then = (count_correct(_verdicts(rows)) for rows in (after, before))
    scores = {
        Metric(PASS, grouping, group, k): _mean_over_problems(
            _pass_by_problem(now, names, k)
        )
        for grouping, group, names in groups
        for k in _feasible_ks(ks, now)
    }
    # No gains by band: bands come from the same samples before RL, so even without
    # learning scores would regress toward the mean.
    for grouping, group, names in (each for each in groups if each[0] != "band"):
        asked = [name for name in names if name in then]
        for k in _feasible_ks(ks, then) if asked else ():
            before_k = _pass_by_problem(then, asked, k)
            scores[Metric(PASS_BEFORE, grouping, group, k)] = _mean_over_problems(
                before_k
            )
            if Metric(PASS, grouping, group, k) in scores:
                after_k = _pass_by_problem(now, asked, k)
                scores[Metric(GAIN, grouping, group, k)] = _mean_over_problems(
                    {name: after_k[name] - before_k[name] for name in asked}
                )
    lengths = {n: mean([row["length"] for row in rows]) for n, rows in after.items()}
    return (
        scores
        | _lenient_scores(after, before)
        | {Metric(LENGTH): _mean_over_problems(lengths)}
    )


def _lenient_scores(after: RowsByProblem, before: RowsByProblem) -> dict[Metric, Score]:
    """Returns lenient accuracy and its gain, {} if a gold is not a number."""
    golds = (row["gold"] for rows in after.values() for row in rows)
    if not has_lenient_accuracy(golds):
        return {}
    now, then = map(_stated_by_problem, (after, before))
    scores = {Metric(LENIENT): _mean_over_problems(now)}
    if both := now.keys() & then.keys():
        scores[Metric(LENIENT_GAINED)] = _mean_over_problems(
            {name: now[name] - then[name] for name in sorted(both)}
        )
    return scores


def _stated_by_problem(rows: RowsByProblem) -> dict[str, float]:
    """Returns the share of each problem's completions that state its gold."""
    return {
        name: mean([states_gold(row["completion"], row["gold"]) for row in each])
        for name, each in rows.items()
    }


def _feasible_ks(ks: Iterable[int], counts: Counts) -> list[int]:
    """Returns the values of k for which every problem has enough samples."""
    fewest = min((samples for samples, _ in counts.values()), default=0)
    return [k for k in ks if k <= fewest]


def _split_problems(
    grouping: str,
    names: Iterable[str],
    group_of: Callable[[str], str],
    groups: Iterable[str],
) -> list[tuple[str, str, list[str]]]:
    """Returns (grouping, group, its problems) for each group that has problems."""
    members = {g: [name for name in names if group_of(name) == g] for g in groups}
    return [(grouping, group, names) for group, names in members.items() if names]


def _pass_by_problem(counts: Counts, names: Iterable[str], k: int) -> dict[str, float]:
    names = [*names]
    samples, correct = np.array([counts[name] for name in names]).T
    return dict(zip(names, pass_at_k(samples, correct, k).tolist(), strict=True))


def _strategy_scores(evals: Mapping[str, Any]) -> dict[Metric, Score]:
    """Returns P(strategy | type) and P(correct | strategy, type) from summary.json.

    For strategies that were already chosen before RL, it also returns the gains.
    """
    now, then = (evals.get(w, {}).get("strategies", {}) for w in ("after", "before"))
    scores: dict[Metric, Score] = {}
    for kind, strategies in now.items():
        for strategy, found in strategies.items():
            of = ("strategy", f"{kind} {strategy}")
            before = then.get(kind, {}).get(strategy)
            for name, gained, part in (
                (CHOSEN, CHOSEN_GAINED, "share"),
                (RIGHT_IF_CHOSEN, RIGHT_GAINED, "pass"),
            ):
                value, interval = found[part]["mean"], Interval.from_json(found[part])
                scores[Metric(name, *of)] = Score(mean=value, interval=interval)
                if before:
                    gain = value - before[part]["mean"]
                    scores[Metric(gained, *of)] = Score(mean=gain)
    return scores


def _calibration_scores(evals: Mapping[str, Any]) -> dict[Metric, Score]:
    """Returns from summary.json how well stated confidences fit the verdicts."""
    scores: dict[Metric, Score] = {}
    for when, suffix in (("after", ""), ("before", _BEFORE)):
        found = evals.get(when, {}).get("calibration") or {}
        for name, key in CALIBRATION.items():
            value = found.get(key)
            if isinstance(value, dict):
                interval = Interval.from_json(value)
                scores[Metric(name + suffix)] = Score(
                    mean=value["mean"], interval=interval
                )
            elif value is not None:
                scores[Metric(name + suffix)] = Score(mean=value)
    return scores


def _feature_scores(run: RunArtifacts) -> dict[Metric, Score]:
    """Returns how many features changed, by band, if `analysis features` has run.

    It also returns how many features are claimed for weight noise that moves the
    residual stream equally far.
    """
    path = run.path / DYNAMICS_FILE
    if not path.is_file():
        return {}
    found = json.loads(path.read_text())
    scores = {
        feature_metric(FEATURES[kind], band): Score(mean=float(count))
        for band, kinds in found["counts"].items()
        for kind, count in kinds.items()
        if kind in FEATURES
    }
    (noise,) = (null for null in found["nulls"] if null["label"] == EQUAL_DRIFT)
    return scores | {
        feature_metric(NOISE_FEATURES, band): Score(
            mean=mean([draw[band][CLAIMED] for draw in noise["draws"]])
        )
        for band in found["counts"]
    }


def feature_metric(name: str, band: str) -> Metric:
    """Returns the metric for a band of reference texts, or for all texts."""
    return Metric(name) if band == ALL_BANDS else Metric(name, "band", band)


def _mean_over_problems(values: Mapping[str, float]) -> Score:
    return Score(mean=mean([*values.values()]), by_problem=values)


def _summary_scores(scores: Mapping[str, Any]) -> dict[Metric, Score]:
    """Returns the held-out scores and their intervals from summary.json."""
    groups = [("all", "", scores)]
    for grouping in ("band", "type"):
        parts = scores.get(f"by_{grouping}", {}).items()
        groups += [(grouping, group, part) for group, part in parts if group]
    pass_scores = {
        Metric(PASS, grouping, group, int(k)): Score(
            mean=interval["mean"], interval=Interval.from_json(interval)
        )
        for grouping, group, part in groups
        for k, interval in part["pass@k"].items()
    }
    return pass_scores | {Metric(LENGTH): Score(mean=scores["length_mean"])}
